/**
 * Reports what policies found without changing a response, since the start: requests that policies in `mode: shadow`
 * would have denied, and differences between the responses of backends and of their mirrors. All lists are bounded, and
 * further entries are only counted.
 */
import type { Exchange, ShadowDenial } from "../core/exchange.ts";
import type { FinishedRequest, RequestValues } from "./finished-request.ts";
import type { Metrics } from "./log/metrics.ts";
import type { MirrorComparison } from "./trace/live-records.ts";

const MAX_SHADOW_RULES = 200;
const MAX_SHADOW_SUBJECTS = 100;
const MAX_SUBJECT_CHARS = 200;
const MAX_SHADOW_EXAMPLES = 3;
const MAX_RULE_CHARS = 300;
const SHOWN_CHARS = 600;

export interface ShadowEntry {
  readonly route: string | null;
  readonly policy: string;
  readonly rule: string;
  readonly denied: number;
  readonly subjects: readonly { readonly subject: string; readonly denied: number }[];
  /** Counts denials of subjects that are not listed. */
  readonly others: number;
  readonly first: string;
  readonly last: string;
  readonly examples: readonly {
    readonly id: string;
    readonly time: string;
    readonly request: string;
    readonly reason: string;
  }[];
}

export interface ShadowReport {
  readonly since: string;
  readonly rules: readonly ShadowEntry[];
  /** Counts denials by rules that are not listed. */
  readonly others: number;
}

export interface ShadowRecords {
  note(finished: FinishedRequest): void;
  report(): ShadowReport;
}

interface ShadowCounts {
  readonly route: string | null;
  readonly policy: string;
  readonly rule: string;
  denied: number;
  others: number;
  readonly subjects: Map<string, number>;
  readonly firstAt: number;
  lastAt: number;
  readonly examples: ShadowEntry["examples"][number][];
}

export function createShadowRecords(metrics: Metrics, nowMs: number): ShadowRecords {
  const counter = metrics.counter(
    "gateway_shadow_denied_total",
    "Requests that a policy in shadow mode would have denied.",
    ["route", "policy"],
  );
  const entries = new Map<string, ShadowCounts>();
  let others = 0;

  function noteOne({ route, startedAt, id, method, path, subject: caller }: RequestValues, denial: ShadowDenial): void {
    const { policy, detail, rule = extractRule(detail) } = denial;
    counter.labels(route ?? "", policy).add();
    const entry = findOrAdd(entries, MAX_SHADOW_RULES, JSON.stringify([route, policy, rule]), () => ({
      route: route ?? null,
      policy,
      rule,
      denied: 0,
      others: 0,
      subjects: new Map(),
      firstAt: startedAt,
      lastAt: startedAt,
      examples: [],
    }));
    if (entry === undefined) {
      others += 1;
      return;
    }
    entry.denied += 1;
    entry.lastAt = startedAt;
    const subject = (caller ?? "(anonymous)").slice(0, MAX_SUBJECT_CHARS);
    const before = entry.subjects.get(subject);
    if (before === undefined && entry.subjects.size >= MAX_SHADOW_SUBJECTS) entry.others += 1;
    else entry.subjects.set(subject, (before ?? 0) + 1);
    if (entry.examples.length < MAX_SHADOW_EXAMPLES)
      entry.examples.push({
        id,
        time: new Date(startedAt).toISOString(),
        request: `${method} ${path}`.slice(0, SHOWN_CHARS),
        reason: detail.slice(0, SHOWN_CHARS),
      });
  }

  return {
    note({ exchange: { shadow }, values }) {
      for (const denial of shadow.denials ?? []) noteOne(values, denial);
      if (shadow.isPending) shadow.onLate = (denial) => noteOne(values, denial);
    },
    report: () => ({
      since: new Date(nowMs).toISOString(),
      rules: [...entries.values()].sort((one, other) => other.denied - one.denied).map(shownRule),
      others,
    }),
  };
}

/** Returns undefined if the key is new and the list is full. */
function findOrAdd<Row>(rows: Map<string, Row>, most: number, key: string, create: () => Row): Row | undefined {
  const known = rows.get(key);
  if (known !== undefined || rows.size >= most) return known;
  const row = create();
  rows.set(key, row);
  return row;
}

/** Returns the rule in the detail, or the whole detail if it names none. */
export function extractRule(detail: string): string {
  return (/`([\s\S]*?)` (?:is|cannot)/.exec(detail)?.[1] ?? detail).slice(0, MAX_RULE_CHARS);
}

function shownRule({ subjects, firstAt, lastAt, ...entry }: ShadowCounts): ShadowEntry {
  const named = [...subjects].map(([subject, denied]) => ({ subject, denied }));
  return {
    ...entry,
    subjects: named.sort((one, other) => other.denied - one.denied),
    first: new Date(firstAt).toISOString(),
    last: new Date(lastAt).toISOString(),
  };
}

const MAX_MIRROR_ENTRIES = 100;
const MAX_MIRROR_DIFFERENCES = 100;
const MIRROR_EXAMPLES = 3;
const DIFFERENCE_CHARS = 300;

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

interface MirrorCounts extends Counts {
  readonly route: string | null;
  readonly mirror: string;
  backendTotalMs: number;
  mirrorTotalMs: number;
  readonly differences: Map<string, { requests: number; readonly examples: { id: string; request: string }[] }>;
}

export function createMirrorRecords(metrics: Metrics, nowMs: number): MirrorRecords {
  const entries = new Map<string, MirrorCounts>();
  let counter: ReturnType<Metrics["counter"]> | undefined;
  let others = 0;

  function noteOne(exchange: Exchange, found: MirrorComparison): void {
    const { failed, status, shape, mirror } = found;
    const result = failed !== undefined ? "failed" : status !== undefined ? "status" : shape ? "shape" : "same";
    counter ??= metrics.counter(
      "gateway_mirror_compared_total",
      "Responses of mirrors that were compared with those of the backends.",
      ["route", "mirror", "result"],
    );
    counter.labels(exchange.route ?? "", mirror, result).add();
    const route = exchange.route ?? null;
    const entry = findOrAdd(entries, MAX_MIRROR_ENTRIES, JSON.stringify([route, mirror]), () => {
      const counts = { compared: 0, same: 0, status: 0, shape: 0, failed: 0, unread: 0, slower: 0, others: 0 };
      return { route, mirror, ...counts, backendTotalMs: 0, mirrorTotalMs: 0, differences: new Map() };
    });
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
      mirrors: [...entries.values()].map(shownMirror).sort((one, other) => other.compared - one.compared),
      others,
    }),
  };
}

function noteDifference(entry: MirrorCounts, { id, request, originalPath }: Exchange, difference: string): void {
  const text = difference.slice(0, DIFFERENCE_CHARS);
  const row = findOrAdd(entry.differences, MAX_MIRROR_DIFFERENCES, text, () => ({ requests: 0, examples: [] }));
  if (row === undefined) {
    entry.others += 1;
    return;
  }
  row.requests += 1;
  if (row.examples.length < MIRROR_EXAMPLES)
    row.examples.push({ id, request: `${request.method} ${originalPath}`.slice(0, DIFFERENCE_CHARS) });
}

function shownMirror({ backendTotalMs, mirrorTotalMs, differences, ...entry }: MirrorCounts): MirrorEntry {
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
