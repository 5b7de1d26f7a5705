/**
 * `/debug/usage` reports usage from the history database, `/debug/usage/status` shows the state of the database, and
 * `/debug/usage/delete` deletes the rows of a user. With a history database, `/debug/requests` also finds requests that
 * are no longer in memory.
 */
import { type Clock, parseTime, parseTimeOrAge } from "../../base/clock.ts";
import type { Form } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { History } from "../../record/history/history.ts";
import type { UsageQuery } from "../../record/history/queries.ts";
import { detailFromRow, recordFromRow } from "../../record/history-record.ts";
import {
  USAGE_DIMENSIONS,
  USAGE_GROUPS,
  type UsageDimension,
  type UsageGroup,
} from "../../record/trace/traffic-numbers.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  numberParameter,
  textResponse,
  unknownParameter,
} from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const BODY = peerInput("admin-client/body");

const MAX_GROUPS = 4;
const DEFAULT_RANGE_MS = 86_400_000;
const LIMIT = { name: "limit", min: 1, max: 1_000, default: 100 };
const CURSOR = { name: "cursor", min: 0, max: 10_000_000, default: 0 };
const REQUESTS_LIMIT = { name: "limit", min: 1, max: 500, default: 100 };
const PARAMETERS = [...USAGE_DIMENSIONS, "by", "since", "until", "limit", "cursor"];

export const HISTORY_OFF = textResponse(404, "the history is off; set `config.history` to record requests\n");

export function usageEndpoint(history: History | undefined, clock: Clock): AdminEndpoint {
  return {
    path: ADMIN_PATHS.usage,
    doc: "Usage from the history database: ?by=team,model&since=30d&until=<time>, ?team=<name> and other filters, ?limit=, ?cursor=.",
    async GET(request) {
      if (history === undefined) return HISTORY_OFF;
      const query = parseUsageQuery(request.query, clock.now());
      return "status" in query ? query : answered(() => history.ask({ kind: "usage", query }));
    },
  };
}

export function usageStatusEndpoint(history: History | undefined): AdminEndpoint {
  return {
    path: ADMIN_PATHS.usageStatus,
    doc: "The state of the history database: rows stored, waiting and dropped.",
    async GET() {
      if (history === undefined) return HISTORY_OFF;
      const stored = await history.ask({ kind: "stored" }).catch(() => null);
      return jsonResponse({ ...history.status(), stored });
    },
  };
}

export function usageDeleteEndpoint(history: History | undefined): AdminEndpoint {
  return {
    path: ADMIN_PATHS.usageDelete,
    doc: 'POST {"subject":"<name>"} deletes the rows of a user from the history database.',
    async POST(request) {
      if (history === undefined) return HISTORY_OFF;
      const subject = parseSubject((await request.body()).toString("utf8"));
      if (subject === undefined) return textResponse(400, 'send JSON such as {"subject":"ada"}\n');
      return answered(() => history.ask({ kind: "delete", subject }));
    },
  };
}

export function requestsWithHistory(endpoint: AdminEndpoint, history: History | undefined): AdminEndpoint {
  const { GET } = endpoint;
  if (history === undefined || GET === undefined) return endpoint;
  return {
    ...endpoint,
    async GET(request) {
      const own = await GET(request);
      const { query } = request;
      const id = query.get("id");
      if (id !== null && own.status === 404) return (await olderWithId(history, id)) ?? own;
      if (id === null && query.has("before") && own.status === 200) return (await olderThan(history, request)) ?? own;
      return own;
    },
  };
}

/** Resolves with undefined if there is none, or if the database is unavailable. */
async function olderWithId(history: History, id: string): Promise<AdminResponse | undefined> {
  const rows = await history.ask({ kind: "id", id }).catch(() => []);
  return rows.length === 0 ? undefined : jsonResponse({ requests: rows.map(detailFromRow) });
}

async function olderThan(history: History, { query }: AdminRequest): Promise<AdminResponse | undefined> {
  const limit = numberParameter(query, REQUESTS_LIMIT);
  const beforeMs = parseTime(query.get("before") ?? "");
  if (!limit.ok) return limit.rejection;
  const rows = await history.ask({ kind: "before", beforeMs, limit: limit.value }).catch(() => undefined);
  return rows && jsonResponse({ requests: rows.map(recordFromRow) });
}

function parseUsageQuery(query: Form, nowMs: number): UsageQuery | AdminResponse {
  const unknown = unknownParameter(query, PARAMETERS);
  if (unknown !== undefined) return unknown;
  const limit = numberParameter(query, LIMIT);
  if (!limit.ok) return limit.rejection;
  const cursor = numberParameter(query, CURSOR);
  if (!cursor.ok) return cursor.rejection;
  const by = (query.get("by") ?? "").split(",").flatMap((name) => (name.trim() === "" ? [] : [name.trim()]));
  const wrong = by.find((name) => !(USAGE_GROUPS as readonly string[]).includes(name));
  if (wrong !== undefined)
    return textResponse(400, `cannot group by ${JSON.stringify(wrong)}; expected ${USAGE_GROUPS.join(", ")}\n`);
  if (by.length > MAX_GROUPS || new Set(by).size < by.length)
    return textResponse(400, `by has up to ${MAX_GROUPS} different names\n`);
  const sinceMs = timeParameter(query.get("since"), nowMs) ?? nowMs - DEFAULT_RANGE_MS;
  const untilMs = timeParameter(query.get("until"), nowMs) ?? nowMs;
  if (Number.isNaN(sinceMs) || Number.isNaN(untilMs))
    return textResponse(
      400,
      "since and until are a time such as 2026-01-31T12:00:00Z, a date, or an age such as 30d\n",
    );
  if (untilMs < sinceMs) return textResponse(400, "since must be before until\n");
  const filter: Partial<Record<UsageDimension, string>> = {};
  for (const name of USAGE_DIMENSIONS) {
    const value = query.get(name);
    if (value !== null) filter[name] = value;
  }
  return { by: by as UsageGroup[], sinceMs, untilMs, filter, limit: limit.value, offset: cursor.value };
}

/** Returns NaN for text that is not a time. */
function timeParameter(text: string | null, nowMs: number): number | undefined {
  return text === null || text === "" ? undefined : parseTimeOrAge(text, nowMs);
}

function parseSubject(text: string): string | undefined {
  try {
    const { subject } = readJson(BODY, text) as { subject?: unknown };
    return typeof subject === "string" && subject !== "" ? subject : undefined;
  } catch {
    return undefined;
  }
}

async function answered(ask: () => Promise<unknown>): Promise<AdminResponse> {
  try {
    return jsonResponse(await ask());
  } catch (error) {
    return jsonResponse({ error: (error as Error).message }, 503);
  }
}
