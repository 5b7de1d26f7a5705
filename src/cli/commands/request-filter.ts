/**
 * Selects requests by the options of `gwctl requests`, and reads as many pages as that takes.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { parseTimeOrAge } from "../../base/clock.ts";
import { newForm } from "../../base/form.ts";
import { type RequestRecord, resultOf } from "../../record/trace/record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import { usageError } from "../terminal/terminal.ts";

export interface RequestFilterFlags {
  readonly failed?: boolean;
  readonly since?: string;
  readonly route?: string;
  readonly status?: string;
  readonly key?: string;
  readonly model?: string;
  readonly tool?: string;
}

export type RequestFilter = (record: RequestRecord) => boolean;

const STATUS = /^[1-5](?:\d\d|xx)$/i;

export function requestFilter(flags: RequestFilterFlags): RequestFilter {
  const { failed, route, status, key, model, tool } = flags;
  if (status !== undefined && !STATUS.test(status))
    throw usageError(`invalid --status ${status}: expected a status such as 429, or a class such as 5xx`);
  const checks: RequestFilter[] = [
    ...(failed ? [(record: RequestRecord) => resultOf(record) !== "ok"] : []),
    ...(route === undefined ? [] : [(record: RequestRecord) => record.route === route]),
    ...(key === undefined ? [] : [(record: RequestRecord) => record.subject === key]),
    ...(model === undefined ? [] : [({ llm }: RequestRecord) => llm?.model === model]),
    ...(tool === undefined ? [] : [({ mcp }: RequestRecord) => mcp?.name === tool]),
    ...(status === undefined ? [] : [(record: RequestRecord) => hasStatus(record, status.toLowerCase())]),
  ];
  return (record) => checks.every((check) => check(record));
}

export function sinceTime(text: string | undefined, nowMs: number): number | undefined {
  if (text === undefined) return undefined;
  const time = parseTimeOrAge(text, nowMs);
  if (Number.isNaN(time))
    throw usageError(`invalid --since ${text}: expected a time such as 2026-11-17T03:00:00Z, or an age such as 15m`);
  return time;
}

function hasStatus({ status }: RequestRecord, wanted: string): boolean {
  const text = String(status ?? "");
  return wanted.endsWith("xx") ? text[0] === wanted[0] : text === wanted;
}

const PAGE = 500;

export interface RequestQuery {
  readonly limit: number;
  readonly before: string | undefined;
  readonly sinceMs: number | undefined;
  readonly matches: RequestFilter;
  /** Whether requests can be left out, so that more than `limit` must be read. */
  readonly isFiltered: boolean;
}

/** Resolves with the newest requests first, up to the oldest one that the gateway keeps. */
export async function readRequests(admin: AdminClient, query: RequestQuery): Promise<RequestRecord[]> {
  const { limit, sinceMs = Number.NEGATIVE_INFINITY, matches } = query;
  const found: RequestRecord[] = [];
  const seen = new Set<string>();
  let { before } = query;
  for (let pages = 1; ; pages += 1) {
    const size = query.isFiltered ? PAGE : Math.min(PAGE, limit - found.length);
    const form = newForm({ limit: String(size), ...(before === undefined ? {} : { before }) });
    const path = `${ADMIN_PATHS.requests}?${form}`;
    const { requests } = await admin.json<{ requests: RequestRecord[] }>(path, "requests");
    const fresh = requests.filter((record) => !seen.has(identityOf(record)));
    for (const record of fresh) seen.add(identityOf(record));
    found.push(...fresh.filter((record) => Date.parse(record.time) >= sinceMs && matches(record)));
    const isFirst = before === undefined;
    const times = requests.map(({ time }) => Date.parse(time));
    // The first page is ordered by the end of the requests, later ones by their start. So the second page begins again.
    const next = isFirst ? Math.max(...times) : Math.min(...times);
    const isEnd = times.length === 0 || (!isFirst && (fresh.length === 0 ? pages > 2 : next < sinceMs));
    if (isEnd || found.length >= limit) return found.slice(0, limit);
    // Includes the millisecond, because other requests of the same one may be on the next page.
    before = new Date(next + 1).toISOString();
  }
}

/** The id alone is not unique, because clients can choose it. */
function identityOf({ id, time, durationMs, path }: RequestRecord): string {
  return JSON.stringify([id, time, Math.round(durationMs), path]);
}
