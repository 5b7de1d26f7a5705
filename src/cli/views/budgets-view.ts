/**
 * Budgets and what was spent of them as a table: the fullest first, what is used up in red.
 */
import type { Paint, Tone } from "../terminal/paint.ts";
import { type Cell, table } from "../terminal/table.ts";
import { type Fields, listOf, numberOf } from "./fields.ts";
import { ageText, counted } from "./units.ts";

const NEARLY_FULL = 0.8;

export function budgetsText(budgets: readonly Fields[], paint: Paint): string {
  const rows = budgets.flatMap((budget): Cell[][] => {
    const limit = numberOf(budget.limit);
    const name = String(budget.name);
    const rule = `${amount(budget.unit, limit)} per ${String(budget.per)}${budget.hard === false ? " (alerts only)" : ""}`;
    const resets = ageText(numberOf(budget.resetSeconds) * 1000);
    const keys = listOf(budget.keys);
    if (keys.length === 0) return [[name, String(budget.owner), rule, "(nothing spent)", "", "", resets]];
    const shown = keys.map((key, i): Cell[] => {
      const spent = numberOf(key.spent);
      const tone = toneOf(spent / limit);
      return [
        i === 0 ? name : "",
        i === 0 ? String(budget.owner) : "",
        i === 0 ? rule : "",
        String(key.key),
        { text: amount(budget.unit, spent), tone },
        { text: `${Math.floor((spent / limit) * 100)}%`, tone },
        i === 0 ? resets : "",
      ];
    });
    const hidden = numberOf(budget.keysInUse) - keys.length;
    return hidden > 0 ? [...shown, ["", "", "", `… ${counted(hidden, "more key")}`, "", "", ""]] : shown;
  });
  return table([["BUDGET", "APPLIES TO", "LIMIT", "KEY", "SPENT", "", "RESETS IN"], ...rows], { paint });
}

function amount(unit: unknown, value: number): string {
  return unit === "usd" ? `$${value.toFixed(value < 1 ? 4 : 2)}` : `${value} tokens`;
}

function toneOf(share: number): Tone | undefined {
  if (share >= 1) return "bad";
  return share >= NEARLY_FULL ? "warn" : undefined;
}
