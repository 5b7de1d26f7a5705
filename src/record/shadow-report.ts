/**
 * Reports the requests that policies in `mode: shadow` would have denied since the start, by route, policy, and rule.
 * All lists are bounded, and further entries are only counted.
 */
import type { Exchange, ShadowDenial } from "../core/exchange.ts";
import { requestSubject } from "../core/principal.ts";
import type { Metrics } from "./log/metrics.ts";

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
  note(exchange: Exchange): void;
  report(): ShadowReport;
}

interface Entry {
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
  const entries = new Map<string, Entry>();
  let others = 0;

  function getOrCreateEntry(route: string | undefined, policy: string, rule: string, at: number): Entry | undefined {
    const key = JSON.stringify([route, policy, rule]);
    const known = entries.get(key);
    if (known || entries.size >= MAX_SHADOW_RULES) return known;
    const entry = {
      route: route ?? null,
      policy,
      rule,
      denied: 0,
      others: 0,
      subjects: new Map(),
      firstAt: at,
      lastAt: at,
      examples: [],
    };
    entries.set(key, entry);
    return entry;
  }

  function noteOne({ route, startedAt, attributes, id, request, originalPath }: Exchange, denial: ShadowDenial): void {
    const { policy, detail, rule } = denial;
    counter.labels(route ?? "", policy).add();
    const entry = getOrCreateEntry(route, policy, rule ?? extractRule(detail), startedAt);
    if (entry === undefined) {
      others += 1;
      return;
    }
    entry.denied += 1;
    entry.lastAt = startedAt;
    const subject = (requestSubject(attributes) ?? "(anonymous)").slice(0, MAX_SUBJECT_CHARS);
    const before = entry.subjects.get(subject);
    if (before === undefined && entry.subjects.size >= MAX_SHADOW_SUBJECTS) entry.others += 1;
    else entry.subjects.set(subject, (before ?? 0) + 1);
    if (entry.examples.length < MAX_SHADOW_EXAMPLES)
      entry.examples.push({
        id,
        time: new Date(startedAt).toISOString(),
        request: `${request.method} ${originalPath}`.slice(0, SHOWN_CHARS),
        reason: detail.slice(0, SHOWN_CHARS),
      });
  }

  return {
    note(exchange) {
      for (const denial of exchange.shadow.denials ?? []) noteOne(exchange, denial);
      if (exchange.shadow.isPending) exchange.shadow.onLate = (denial) => noteOne(exchange, denial);
    },
    report: () => ({
      since: new Date(nowMs).toISOString(),
      rules: [...entries.values()].sort((one, other) => other.denied - one.denied).map(shown),
      others,
    }),
  };
}

/** Returns the rule in the detail, or the whole detail if it names none. */
export function extractRule(detail: string): string {
  return (/`([\s\S]*?)` (?:is|cannot)/.exec(detail)?.[1] ?? detail).slice(0, MAX_RULE_CHARS);
}

function shown({ subjects, firstAt, lastAt, ...entry }: Entry): ShadowEntry {
  const named = [...subjects].map(([subject, denied]) => ({ subject, denied }));
  return {
    ...entry,
    subjects: named.sort((one, other) => other.denied - one.denied),
    first: new Date(firstAt).toISOString(),
    last: new Date(lastAt).toISOString(),
  };
}
