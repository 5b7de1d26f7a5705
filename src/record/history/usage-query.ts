/**
 * Reads the usage of a time range from the hourly sums, grouped by dimensions.
 */
import type { ResultRow, Sql } from "./engine.ts";
import type { RowValue } from "./history-row.ts";
import { HOUR_MS } from "./row-groups.ts";
import { SUMS } from "./usage-columns.ts";

/** Maps the names in requests and responses to columns. */
export const USAGE_DIMENSIONS = {
  team: "team",
  key: "key",
  user: "user_name",
  route: "route",
  model: "model",
  provider: "provider",
  server: "server",
  tool: "tool",
} as const;
export type UsageDimension = keyof typeof USAGE_DIMENSIONS;

const DAY_MS = 24 * HOUR_MS;
const TIME_GROUPS = { hour: "hour", day: `(hour - hour % ${DAY_MS})` } as const;
export const USAGE_GROUPS = [...Object.keys(USAGE_DIMENSIONS), ...Object.keys(TIME_GROUPS)] as readonly UsageGroup[];
export type UsageGroup = UsageDimension | keyof typeof TIME_GROUPS;

export interface UsageQuery {
  readonly by: readonly UsageGroup[];
  /** Times are in milliseconds since the epoch. `sinceMs` is rounded down to an hour, and `untilMs` is rounded up. */
  readonly sinceMs: number;
  readonly untilMs: number;
  readonly filter: Readonly<Partial<Record<UsageDimension, string>>>;
  readonly limit: number;
  readonly offset: number;
}

export interface UsageSums {
  readonly requests: number;
  readonly ok: number;
  readonly rejected: number;
  readonly failed: number;
  readonly aborted: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
  /** The cost is in US dollars. */
  readonly cost: number;
  /** Contains the sum of all durations. */
  readonly durationMs: number;
  readonly responseBytes: number;
  /** The arrival of the last request, in RFC 3339 format. Null if there was none, or if its version stored only the hour. */
  readonly lastAt: string | null;
}

export interface UsageReport {
  readonly since: string;
  readonly until: string;
  readonly by: readonly UsageGroup[];
  /** Each row has the values of `by`. Hours and days are RFC 3339 times. */
  readonly rows: readonly (UsageSums & Partial<Record<UsageGroup, string>>)[];
  readonly total: UsageSums;
  /** Contains the offset of the next page, or null on the last page. */
  readonly next: number | null;
}

export async function readUsage(sql: Sql, query: UsageQuery): Promise<UsageReport> {
  const sinceMs = Math.floor(query.sinceMs / HOUR_MS) * HOUR_MS;
  const untilMs = Math.ceil(query.untilMs / HOUR_MS) * HOUR_MS;
  const parameters: RowValue[] = [sinceMs, untilMs];
  const conditions = ["hour >= $1", "hour < $2"];
  for (const [name, value] of Object.entries(query.filter)) {
    parameters.push(value);
    conditions.push(`${USAGE_DIMENSIONS[name as UsageDimension]} = $${parameters.length}`);
  }
  const from = `FROM gateway_usage WHERE ${conditions.join(" AND ")}`;
  const sums = [
    ...SUMS.map((name) => `COALESCE(SUM(${name}), 0) AS ${name}`),
    "COALESCE(MAX(last_time), 0) AS last_time",
  ].join(", ");
  const total = async () => (await sql.all(`SELECT ${sums} ${from}`, parameters))[0] ?? {};
  const report = {
    since: new Date(sinceMs).toISOString(),
    until: new Date(untilMs).toISOString(),
    by: query.by,
  };
  if (query.by.length === 0) return { ...report, rows: [], total: sumsOf(await total()), next: null };
  const groups = query.by.map(expressionOf);
  const names = query.by.map((_, i) => `g${i}`);
  // Rows are sorted by time groups, then by cost and requests. The group values make the order of pages stable.
  const times = query.by.flatMap((name, i) => (name in TIME_GROUPS ? [`g${i}`] : []));
  const order = [...times, "cost_nano DESC", "requests DESC", ...names].join(", ");
  const rows = await sql.all(
    `SELECT ${groups.map((group, i) => `${group} AS g${i}`).join(", ")}, ${sums} ${from} GROUP BY ${groups.join(", ")} ORDER BY ${order} LIMIT ${query.limit + 1} OFFSET ${query.offset}`,
    parameters,
  );
  // If the page has all groups, the total needs no second query.
  const isWhole = query.offset === 0 && rows.length <= query.limit;
  return {
    ...report,
    total: sumsOf(isWhole ? added(rows) : await total()),
    rows: rows.slice(0, query.limit).map((row) => ({
      ...Object.fromEntries(query.by.map((name, i) => [name, groupText(name, row[`g${i}`])])),
      ...sumsOf(row),
    })),
    next: rows.length > query.limit ? query.offset + query.limit : null,
  };
}

function added(rows: readonly ResultRow[]): ResultRow {
  return {
    ...Object.fromEntries(SUMS.map((name) => [name, rows.reduce((sum, row) => sum + Number(row[name]), 0)])),
    last_time: rows.reduce((last, row) => Math.max(last, Number(row.last_time)), 0),
  };
}

function expressionOf(group: UsageGroup): string {
  return group in TIME_GROUPS
    ? TIME_GROUPS[group as keyof typeof TIME_GROUPS]
    : USAGE_DIMENSIONS[group as UsageDimension];
}

function groupText(group: UsageGroup, value: unknown): string {
  return group in TIME_GROUPS ? new Date(Number(value)).toISOString() : String(value);
}

function sumsOf(row: Readonly<Record<string, unknown>>): UsageSums {
  const sum = (name: (typeof SUMS)[number]): number => Number(row[name] ?? 0);
  return {
    requests: sum("requests"),
    ok: sum("ok"),
    rejected: sum("rejected"),
    failed: sum("failed"),
    aborted: sum("aborted"),
    inputTokens: sum("input_tokens"),
    outputTokens: sum("output_tokens"),
    cachedTokens: sum("cached_tokens"),
    cacheWriteTokens: sum("cache_write_tokens"),
    reasoningTokens: sum("reasoning_tokens"),
    cost: sum("cost_nano") / 1e9,
    durationMs: sum("duration_us") / 1000,
    responseBytes: sum("response_bytes"),
    lastAt: Number(row.last_time ?? 0) > 0 ? new Date(Number(row.last_time)).toISOString() : null,
  };
}
