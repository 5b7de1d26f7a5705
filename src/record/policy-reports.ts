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

interface ShadowEntry {
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

/** Rows with a key. Further keys beyond the limit are only counted. */
class BoundedRows<Row> {
  readonly #rows = new Map<string, Row>();
  readonly #most: number;
  /** Counts requests for rows that were not added. */
  others = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Returns undefined if the key is new and the list is full. */
  findOrAdd(key: string, create: () => Row): Row | undefined {
    const known = this.#rows.get(key);
    if (known !== undefined) return known;
    if (this.#rows.size >= this.#most) {
      this.others += 1;
      return undefined;
    }
    const row = create();
    this.#rows.set(key, row);
    return row;
  }

  /** Returns the rows with the largest counts first. */
  sorted(count: (row: Row) => number): Row[] {
    return [...this.#rows.values()].sort((one, other) => count(other) - count(one));
  }
}

const newShadowEntry = (route: string | undefined, policy: string, rule: string, nowMs: number) => ({
  route: route ?? null,
  policy,
  rule,
  denied: 0,
  subjects: new BoundedRows<{ readonly subject: string; denied: number }>(MAX_SHADOW_SUBJECTS),
  firstAt: nowMs,
  lastAt: nowMs,
  examples: [] as ShadowEntry["examples"][number][],
});

export function createShadowRecords(metrics: Metrics, nowMs: number): ShadowRecords {
  const counter = metrics.counter(
    "gateway_shadow_denied_total",
    "Requests that a policy in shadow mode would have denied.",
    ["route", "policy"],
  );
  const entries = new BoundedRows<ReturnType<typeof newShadowEntry>>(MAX_SHADOW_RULES);

  function noteOne(values: RequestValues, { policy, detail, rule = extractRule(detail) }: ShadowDenial): void {
    const { route, startedAt, id, method, path } = values;
    counter.labels(route ?? "", policy).add();
    const key = JSON.stringify([route, policy, rule]);
    const entry = entries.findOrAdd(key, () => newShadowEntry(route, policy, rule, startedAt));
    if (entry === undefined) return;
    entry.denied += 1;
    entry.lastAt = startedAt;
    const subject = (values.subject ?? "(anonymous)").slice(0, MAX_SUBJECT_CHARS);
    const row = entry.subjects.findOrAdd(subject, () => ({ subject, denied: 0 }));
    if (row !== undefined) row.denied += 1;
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
      rules: entries
        .sorted(({ denied }) => denied)
        .map(({ subjects, firstAt, lastAt, ...entry }) => ({
          ...entry,
          subjects: subjects.sorted(({ denied }) => denied),
          others: subjects.others,
          first: new Date(firstAt).toISOString(),
          last: new Date(lastAt).toISOString(),
        })),
      others: entries.others,
    }),
  };
}

/** Returns the rule in the detail, or the whole detail if it names none. */
export function extractRule(detail: string): string {
  return (/`([\s\S]*?)` (?:is|cannot)/.exec(detail)?.[1] ?? detail).slice(0, MAX_RULE_CHARS);
}

const MAX_MIRROR_ENTRIES = 100;
const MAX_MIRROR_DIFFERENCES = 100;
const MIRROR_EXAMPLES = 3;
const DIFFERENCE_CHARS = 300;

interface MirrorEntry {
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

const newMirrorEntry = (route: string | undefined, mirror: string) => ({
  route: route ?? null,
  mirror,
  ...{ compared: 0, same: 0, status: 0, shape: 0, failed: 0, unread: 0, slower: 0 },
  backendTotalMs: 0,
  mirrorTotalMs: 0,
  differences: new BoundedRows<{
    readonly difference: string;
    requests: number;
    readonly examples: { readonly id: string; readonly request: string }[];
  }>(MAX_MIRROR_DIFFERENCES),
});

type MirrorCounts = ReturnType<typeof newMirrorEntry>;

export function createMirrorRecords(metrics: Metrics, nowMs: number): MirrorRecords {
  const entries = new BoundedRows<MirrorCounts>(MAX_MIRROR_ENTRIES);
  let counter: ReturnType<Metrics["counter"]> | undefined;

  function noteOne(exchange: Exchange, found: MirrorComparison): void {
    const { failed, status, shape, mirror } = found;
    const result = failed !== undefined ? "failed" : status !== undefined ? "status" : shape ? "shape" : "same";
    counter ??= metrics.counter(
      "gateway_mirror_compared_total",
      "Responses of mirrors that were compared with those of the backends.",
      ["route", "mirror", "result"],
    );
    const { route } = exchange;
    counter.labels(route ?? "", mirror, result).add();
    const entry = entries.findOrAdd(JSON.stringify([route, mirror]), () => newMirrorEntry(route, mirror));
    if (entry === undefined) return;
    entry.compared += 1;
    if (result === "same") entry.same += 1;
    if (failed !== undefined) entry.failed += 1;
    else if (!found.hasShape) entry.unread += 1;
    if (status !== undefined) entry.status += 1;
    if (shape !== undefined) entry.shape += 1;
    if (found.isSlower) entry.slower += 1;
    entry.backendTotalMs += found.backendMs;
    entry.mirrorTotalMs += found.mirrorMs;
    for (const difference of [failed, status, ...(shape ?? [])])
      if (difference !== undefined) noteDifference(entry, exchange, difference);
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
      mirrors: entries.sorted(({ compared }) => compared).map(shownMirror),
      others: entries.others,
    }),
  };
}

function noteDifference({ differences }: MirrorCounts, { id, request, originalPath }: Exchange, text: string): void {
  const difference = text.slice(0, DIFFERENCE_CHARS);
  const row = differences.findOrAdd(difference, () => ({ difference, requests: 0, examples: [] }));
  if (row === undefined) return;
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
    differences: differences.sorted(({ requests }) => requests),
    others: differences.others,
  };
}
