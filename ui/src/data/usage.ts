/**
 * Reads usage from the history database, page by page.
 */
import type { UsageGroup, UsageReport } from "../../../src/record/trace/traffic-numbers.ts";
import { getJson } from "./api.ts";

export type { UsageGroup, UsageReport };
export type UsageRow = UsageReport["rows"][number];

const PAGE_ROWS = 1_000;
/** Further rows are left out of tables, but counted in the total. */
const MAX_PAGES = 5;

export async function readUsage(
  by: readonly UsageGroup[],
  parameters: Readonly<Record<string, string>>,
): Promise<UsageReport> {
  const rows: UsageRow[] = [];
  let cursor: number | null = 0;
  for (let page = 0; ; page++) {
    const query = new URLSearchParams({
      ...parameters,
      by: by.join(","),
      limit: String(PAGE_ROWS),
      cursor: String(cursor),
    });
    const report: UsageReport & { readonly error?: string } = await getJson(`debug/usage?${query}`);
    if (report.error !== undefined) throw new Error(report.error);
    rows.push(...report.rows);
    cursor = report.next;
    if (cursor === null || page + 1 >= MAX_PAGES) return { ...report, rows };
  }
}
