/**
 * Computes the totals, chart series, and CSV of the spend by one dimension and time.
 */
import type { UsageReport, UsageRow } from "../../data/usage.ts";
import type { ChartSeries } from "../../parts/chart-scale.ts";
import { csvCell } from "../../parts/csv.ts";

export type SpendBy = "key" | "user" | "team" | "model";

/** The chart has one color for each name. The others share one. */
const CHART_NAMES = 5;

export interface SpendTotal {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cost: number;
}

/** Returns the most expensive first. */
export function totalsBy(rows: readonly UsageRow[], by: SpendBy): SpendTotal[] {
  const totals = new Map<string, SpendTotal>();
  for (const row of rows) {
    const name = row[by] ?? "";
    const sum = totals.get(name) ?? { name, requests: 0, failed: 0, inputTokens: 0, outputTokens: 0, cost: 0 };
    totals.set(name, {
      name,
      requests: sum.requests + row.requests,
      failed: sum.failed + row.failed,
      inputTokens: sum.inputTokens + row.inputTokens,
      outputTokens: sum.outputTokens + row.outputTokens,
      cost: sum.cost + row.cost,
    });
  }
  return [...totals.values()].sort((a, b) => b.cost - a.cost || b.requests - a.requests);
}

export function chartSeries(
  { rows, by: [unit] }: Pick<UsageReport, "rows" | "by">,
  by: SpendBy,
  slots: number,
  nowMs: number,
): { times: number[]; slotSeconds: number; series: ChartSeries[] } {
  const slotSeconds = unit === "hour" ? 3_600 : 86_400;
  const last = Math.floor(nowMs / (slotSeconds * 1000));
  const times = Array.from({ length: slots }, (_unused, i) => (last - slots + 1 + i) * slotSeconds * 1000);
  const top = totalsBy(rows, by)
    .filter(({ cost }) => cost > 0)
    .slice(0, CHART_NAMES)
    .map(({ name }) => name);
  const values = new Map<string, number[]>();
  for (const row of rows) {
    const index = times.indexOf(Date.parse((unit === "hour" ? row.hour : row.day) ?? ""));
    const name = top.includes(row[by] ?? "") ? (row[by] ?? "") : undefined;
    if (index < 0 || row.cost === 0) continue;
    const key = name === undefined ? "\nother" : name;
    const list = values.get(key) ?? new Array<number>(slots).fill(0);
    list[index] = (list[index] ?? 0) + row.cost;
    values.set(key, list);
  }
  const series = top.map((name, i) => ({
    name: name === "" ? "none" : name,
    color: `--chart-${i + 1}`,
    values: values.get(name) ?? [],
  }));
  const other = values.get("\nother");
  return {
    times,
    slotSeconds,
    series: other === undefined ? series : [...series, { name: "other", color: "--line-strong", values: other }],
  };
}

const NUMBERS = ["requests", "ok", "rejected", "failed", "aborted", "inputTokens", "outputTokens", "cost"] as const;

export function csvOf({ rows, by }: Pick<UsageReport, "rows" | "by">): string {
  const lines = rows.map((row) => [...by.map((name) => row[name] ?? ""), ...NUMBERS.map((name) => String(row[name]))]);
  return [[...by, ...NUMBERS], ...lines].map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join("");
}
