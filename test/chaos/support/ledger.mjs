/**
 * Keeps what each request came to and when each fault was active. A failure is allowed only while a fault that explains
 * it was active, or within the time that recovering from it takes.
 */
const MAX_EXAMPLES = 5;

/** Thrown by traffic: an answer that is not what was asked for. Never allowed. */
export class WrongAnswer extends Error {}
/** Thrown by traffic: nothing within the client's patience. Never allowed. */
export class Hang extends Error {}

export function openLedger() {
  const counts = new Map();
  const failures = [];
  const faults = [];
  const broken = [];
  const countOf = (kind) => {
    if (!counts.has(kind)) counts.set(kind, { answered: 0, explained: 0, unexplained: 0, wrong: 0, hung: 0 });
    return counts.get(kind);
  };
  return {
    counts,
    faults,
    /** What must never be, in words: the run has failed. */
    broken,
    answered: (kind) => void countOf(kind).answered++,
    failed(kind, beganMs, error) {
      const count = countOf(kind);
      if (error instanceof WrongAnswer || error instanceof Hang) {
        count[error instanceof Hang ? "hung" : "wrong"] += 1;
        broken.push(`${kind}: ${error.message}`);
      } else failures.push({ kind, beganMs, endedMs: Date.now(), why: error.message });
    },
    /** Judges the failures, once all faults are known. */
    judge() {
      const unexplained = [];
      for (const failure of failures) {
        const isExplained = faults.some((fault) => explains(fault, failure));
        countOf(failure.kind)[isExplained ? "explained" : "unexplained"] += 1;
        if (!isExplained) unexplained.push(failure);
      }
      for (const { kind, why, beganMs, endedMs } of unexplained.slice(0, MAX_EXAMPLES)) {
        const near = faults
          .filter((fault) => fault.beganMs <= endedMs && fault.endedMs + 5_000 >= beganMs)
          .map(({ name, endedMs: end }) => `${name} (ended ${beganMs - end} ms before)`);
        broken.push(`${kind} failed without a fault that explains it: ${why}; near it: ${near.join(", ") || "none"}`);
      }
      if (unexplained.length > MAX_EXAMPLES) broken.push(`${unexplained.length - MAX_EXAMPLES} more of these`);
    },
  };
}

function explains({ explains: kinds, beganMs, endedMs, recoveryMs }, failure) {
  const isOfKind = kinds === "all" || kinds.includes(failure.kind);
  return isOfKind && failure.endedMs >= beganMs && failure.beganMs <= endedMs + recoveryMs;
}
