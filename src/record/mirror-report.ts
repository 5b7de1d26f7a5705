/**
 * Reports differences between the responses of backends and their mirrors since the start, by route and mirror. All
 * lists are bounded, and further entries are only counted.
 */
import type { Exchange } from "../core/exchange.ts";
import type { Metrics } from "./log/metrics.ts";
import type { MirrorComparison } from "./trace/mirror-comparison.ts";

const MAX_MIRROR_ENTRIES = 100;
const MAX_MIRROR_DIFFERENCES = 100;
const EXAMPLES = 3;
const SHOWN_CHARS = 300;

export interface MirrorEntry {
  readonly route: string | null;
  readonly mirror: string;
  readonly compared: number;
  /** Counts responses with the same status and, if both bodies are readable, the same shape. */
  readonly same: number;
  readonly status: number;
  readonly shape: number;
  readonly failed: number;
  /** Counts responses whose shape could not be compared. */
  readonly unread: number;
  /** Counts responses for which the mirror took more than 50% and 10 ms longer than the backend. */
  readonly slower: number;
  /** `backendMs` and `mirrorMs` are mean times to the response head. */
  readonly backendMs: number;
  readonly mirrorMs: number;
  readonly differences: readonly {
    readonly difference: string;
    readonly requests: number;
    readonly examples: readonly { readonly id: string; readonly request: string }[];
  }[];
  /** Counts occurrences of differences that are not listed. */
  readonly others: number;
}

export interface MirrorReport {
  readonly since: string;
  readonly mirrors: readonly MirrorEntry[];
  /** Counts comparisons of mirrors that are not listed. */
  readonly others: number;
}

export interface MirrorRecords {
  note(exchange: Exchange): void;
  report(): MirrorReport;
}

type Counts = {
  -readonly [Name in "compared" | "same" | "status" | "shape" | "failed" | "unread" | "slower" | "others"]: number;
};

interface Entry extends Counts {
  readonly route: string | null;
  readonly mirror: string;
  backendTotalMs: number;
  mirrorTotalMs: number;
  readonly differences: Map<string, { requests: number; readonly examples: { id: string; request: string }[] }>;
}

export function createMirrorRecords(metrics: Metrics, nowMs: number): MirrorRecords {
  const entries = new Map<string, Entry>();
  let counter: ReturnType<Metrics["counter"]> | undefined;
  let others = 0;

  function getOrCreateEntry(route: string | null, mirror: string): Entry | undefined {
    const key = JSON.stringify([route, mirror]);
    const known = entries.get(key);
    if (known !== undefined || entries.size >= MAX_MIRROR_ENTRIES) return known;
    const counts = { compared: 0, same: 0, status: 0, shape: 0, failed: 0, unread: 0, slower: 0, others: 0 };
    const entry = { route, mirror, ...counts, backendTotalMs: 0, mirrorTotalMs: 0, differences: new Map() };
    entries.set(key, entry);
    return entry;
  }

  function noteOne(exchange: Exchange, found: MirrorComparison): void {
    const { failed, status, shape, mirror } = found;
    const result = failed !== undefined ? "failed" : status !== undefined ? "status" : shape ? "shape" : "same";
    counter ??= metrics.counter("gateway_mirror_compared_total", "Answers of mirrors that were compared.", [
      "route",
      "mirror",
      "result",
    ]);
    counter.labels(exchange.route ?? "", mirror, result).add();
    const entry = getOrCreateEntry(exchange.route ?? null, mirror);
    if (entry === undefined) {
      others += 1;
      return;
    }
    entry.compared += 1;
    if (result === "same") entry.same += 1;
    if (failed !== undefined) entry.failed += 1;
    else if (!found.hasShape) entry.unread += 1;
    if (status !== undefined) entry.status += 1;
    if (shape !== undefined) entry.shape += 1;
    if (found.isSlower) entry.slower += 1;
    entry.backendTotalMs += found.backendMs;
    entry.mirrorTotalMs += found.mirrorMs;
    if (failed !== undefined) noteDifference(entry, exchange, failed);
    if (status !== undefined) noteDifference(entry, exchange, status);
    for (const difference of shape ?? []) noteDifference(entry, exchange, difference);
  }

  return {
    note(exchange) {
      const { mirrored } = exchange.records;
      if (mirrored === undefined) return;
      for (const found of mirrored.found) noteOne(exchange, found);
      if (mirrored.pending > 0) mirrored.onLate = (found) => noteOne(exchange, found);
    },
    report: () => ({
      since: new Date(nowMs).toISOString(),
      mirrors: [...entries.values()].map(shown).sort((one, other) => other.compared - one.compared),
      others,
    }),
  };
}

function noteDifference(entry: Entry, { id, request, originalPath }: Exchange, difference: string): void {
  const text = difference.slice(0, SHOWN_CHARS);
  const known = entry.differences.get(text);
  if (known === undefined && entry.differences.size >= MAX_MIRROR_DIFFERENCES) {
    entry.others += 1;
    return;
  }
  const row = known ?? { requests: 0, examples: [] };
  entry.differences.set(text, row);
  row.requests += 1;
  if (row.examples.length < EXAMPLES)
    row.examples.push({ id, request: `${request.method} ${originalPath}`.slice(0, SHOWN_CHARS) });
}

function shown({ backendTotalMs, mirrorTotalMs, differences, ...entry }: Entry): MirrorEntry {
  const mean = (totalMs: number): number => Math.round((totalMs / entry.compared) * 100) / 100;
  return {
    ...entry,
    backendMs: mean(backendTotalMs),
    mirrorMs: mean(mirrorTotalMs),
    differences: [...differences]
      .map(([difference, row]) => ({ difference, ...row }))
      .sort((one, other) => other.requests - one.requests),
  };
}
