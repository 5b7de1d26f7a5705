/**
 * Formats rate limit rules and their buckets as a table. Exhausted buckets are red.
 */

import { type Cell, table } from "../terminal/table.ts";
import type { Paint, Tone } from "../terminal/terminal.ts";
import { ageText, counted, type Fields, fieldsOf, listOf, numberOf } from "./units.ts";

const NEARLY_EMPTY = 0.1;
const BAR_CHARS = 10;

export interface Bucket {
  readonly owner: string;
  readonly rule: string;
  readonly key: string;
  readonly remaining: number;
  readonly limit: number;
  readonly resetSeconds: number;
}

export function limitsText(rules: readonly Fields[], paint: Paint): string {
  const rows = rules.flatMap((rule): Cell[][] => {
    const buckets = bucketsOf(rule);
    const rejected = String(numberOf(rule.refusals));
    if (buckets.length === 0) return [[String(rule.owner), ruleText(rule), "(not used yet)", "", "", "", rejected]];
    const shown = buckets.map((bucket, i): Cell[] => [
      i === 0 ? bucket.owner : "",
      i === 0 ? bucket.rule : "",
      bucket.key,
      { text: barOf(bucket), tone: toneOf(bucket) },
      { text: `${bucket.remaining}/${bucket.limit}`, tone: toneOf(bucket) },
      ageText(bucket.resetSeconds * 1000),
      i === 0 ? rejected : "",
    ]);
    const hidden = numberOf(rule.bucketsInUse) - buckets.length;
    return hidden > 0 ? [...shown, ["", "", `… ${counted(hidden, "more key")}`, "", "", "", ""]] : shown;
  });
  return table([["APPLIES TO", "LIMIT", "KEY", "LEFT", "", "RESETS IN", "REJECTED"], ...rows], { paint });
}

export function nearlyEmpty(rules: readonly Fields[]): Bucket[] {
  return rules
    .flatMap(bucketsOf)
    .filter(({ remaining, limit }) => remaining <= limit * NEARLY_EMPTY)
    .sort((a, b) => a.remaining / a.limit - b.remaining / b.limit);
}

function bucketsOf(rule: Fields): Bucket[] {
  return listOf(rule.buckets).map((bucket) => ({
    owner: String(rule.owner),
    rule: ruleText(rule),
    key: bucket.key === "" ? "(all)" : String(bucket.key ?? "(all)"),
    remaining: numberOf(bucket.remaining),
    limit: Math.max(1, numberOf(bucket.limit)),
    resetSeconds: numberOf(bucket.resetSeconds),
  }));
}

/** Formats a rule, for example `5 requests per minute by source.address`. */
function ruleText({ rule }: Fields): string {
  const { requests, tokens, cost, unit, key, ...rest } = fieldsOf(rule);
  const [amount, noun] =
    requests !== undefined ? [requests, "requests"] : tokens !== undefined ? [tokens, "tokens"] : [cost, "cost"];
  if (amount === undefined) return JSON.stringify(fieldsOf(rule));
  const per = typeof unit === "string" ? ` per ${unit.toLowerCase().replace(/s$/, "")}` : "";
  const by = key === undefined ? "" : ` by ${typeof key === "string" ? key : JSON.stringify(key)}`;
  const burst = rest.burst === undefined ? "" : `, burst ${String(rest.burst)}`;
  return `${String(amount)} ${noun}${per}${by}${burst}`;
}

function barOf({ remaining, limit }: Bucket): string {
  const full = Math.min(BAR_CHARS, Math.max(0, Math.ceil((remaining / limit) * BAR_CHARS)));
  return "█".repeat(full) + "░".repeat(BAR_CHARS - full);
}

function toneOf({ remaining, limit }: Bucket): Tone | undefined {
  if (remaining <= 0) return "bad";
  return remaining <= limit * NEARLY_EMPTY ? "warn" : undefined;
}
