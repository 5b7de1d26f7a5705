/**
 * Reads the buckets of rate limit rules from `/debug/limits`.
 */
import { type Fields, fieldsOf, listOf, numberOf } from "./units.ts";

export const NEARLY_EMPTY = 0.1;

export interface Bucket {
  readonly owner: string;
  readonly rule: string;
  readonly key: string;
  readonly remaining: number;
  readonly limit: number;
  readonly resetSeconds: number;
}

export function nearlyEmpty(rules: readonly Fields[]): Bucket[] {
  return rules
    .flatMap(bucketsOf)
    .filter(({ remaining, limit }) => remaining <= limit * NEARLY_EMPTY)
    .sort((a, b) => a.remaining / a.limit - b.remaining / b.limit);
}

export function bucketsOf(rule: Fields): Bucket[] {
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
export function ruleText({ rule }: Fields): string {
  const { requests, tokens, cost, unit, key, ...rest } = fieldsOf(rule);
  const [amount, noun] =
    requests !== undefined ? [requests, "requests"] : tokens !== undefined ? [tokens, "tokens"] : [cost, "cost"];
  if (amount === undefined) return JSON.stringify(fieldsOf(rule));
  const per = typeof unit === "string" ? ` per ${unit.toLowerCase().replace(/s$/, "")}` : "";
  const by = key === undefined ? "" : ` by ${typeof key === "string" ? key : JSON.stringify(key)}`;
  const burst = rest.burst === undefined ? "" : `, burst ${String(rest.burst)}`;
  return `${String(amount)} ${amount === 1 ? noun.replace(/s$/, "") : noun}${per}${by}${burst}`;
}
