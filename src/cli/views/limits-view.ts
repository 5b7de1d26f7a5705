/**
 * Formats rate limit rules and their buckets as a table. Exhausted buckets are red.
 */

import { ageText } from "../../base/format.ts";
import { type Cell, table } from "../terminal/table.ts";
import type { Paint, Tone } from "../terminal/terminal.ts";
import { type Bucket, bucketsOf, NEARLY_EMPTY, ruleText } from "./limit-buckets.ts";
import { counted, type Fields, numberOf } from "./units.ts";

const BAR_CHARS = 10;

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

function barOf({ remaining, limit }: Bucket): string {
  const full = Math.min(BAR_CHARS, Math.max(0, Math.ceil((remaining / limit) * BAR_CHARS)));
  return "█".repeat(full) + "░".repeat(BAR_CHARS - full);
}

function toneOf({ remaining, limit }: Bucket): Tone | undefined {
  if (remaining <= 0) return "bad";
  return remaining <= limit * NEARLY_EMPTY ? "warn" : undefined;
}
