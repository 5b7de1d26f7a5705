/**
 * Polls the recent requests, newest first. A stream would cost a busy gateway more than a bounded response.
 */
import { signal } from "@preact/signals";
import type { RequestDetail, RequestRecord } from "../../../src/record/trace/record.ts";
import { page } from "../frame/router.ts";
import { getJson } from "./api.ts";
import { onReturn } from "./connection.ts";
import { createPoll } from "./poll.ts";

export type { RequestDetail, RequestRecord };

export interface RequestRow extends RequestRecord {
  /** Describes the request by its MCP method and name, its model, or its method and path. */
  readonly what: string;
}

/** The page with the table polls faster than other pages. */
const TABLE = { intervalMs: 1_000, rows: 100 };
const ELSEWHERE = { intervalMs: 3_000, rows: 20 };
/** The gateway returns at most FIRST_ROWS per response, and keeps at most MAX_ROWS. */
const FIRST_ROWS = 500;
export const MAX_ROWS = 10_000;

interface RequestsResponse {
  readonly requests: readonly RequestRecord[];
  readonly inFlight: number;
}

let rows: readonly RequestRow[] = [];
/** After an outage, the gateway may have been restarted, so its sequence numbers start again. */
let wasUnavailable = false;
onReturn(() => {
  wasUnavailable = true;
});

export const hasOlder = signal(true);
export const isReadingOlder = signal(false);

export const inFlight = signal(0);
/** New requests are held back, so that rows do not move while the user reads. */
export const isPaused = signal(false);

export const requestList = createPoll(
  () => (isPaused.value && rows.length > 0 ? Promise.resolve(rows) : newestRows()),
  () => pace().intervalMs,
);

async function newestRows(): Promise<readonly RequestRow[]> {
  const isRestart = wasUnavailable;
  const newest = isRestart ? undefined : rows[0]?.seq;
  const since = newest === undefined ? "" : `&since=${newest}`;
  const response = await getJson<RequestsResponse>(
    `debug/requests?limit=${newest === undefined ? FIRST_ROWS : pace().rows}${since}`,
  );
  // The request was sent before the outage, so its sequence numbers may be from an earlier process.
  if (wasUnavailable && !isRestart) return newestRows();
  inFlight.value = response.inFlight;
  if (isRestart) {
    rows = [];
    wasUnavailable = false;
    hasOlder.value = true;
  }
  if (response.requests.length === 0) {
    if (newest !== undefined && (await restarted(newest))) rows = [];
    return rows;
  }
  rows = [...response.requests.map(rowOf), ...rows].slice(0, MAX_ROWS);
  return rows;
}

export async function readOlder(): Promise<void> {
  const last = rows.at(-1);
  if (isReadingOlder.peek() || !hasOlder.peek() || last === undefined) return;
  isReadingOlder.value = true;
  try {
    const before = encodeURIComponent(last.time);
    const { requests } = await getJson<RequestsResponse>(`debug/requests?before=${before}&limit=${FIRST_ROWS}`);
    hasOlder.value = requests.length > 0 && rows.length + requests.length < MAX_ROWS;
    rows = [...rows, ...requests.map(rowOf)].slice(0, MAX_ROWS);
    await requestList.refresh();
  } catch {
    // A banner reports the outage, and the button stays available.
  } finally {
    isReadingOlder.value = false;
  }
}

function pace(): typeof TABLE {
  return page.peek() === "requests" ? TABLE : ELSEWHERE;
}

let looks = 0;

/** The check costs a request, so only every fifth call makes it. */
async function restarted(newest: number): Promise<boolean> {
  looks += 1;
  if (looks % 5 !== 0) return false;
  const response = await getJson<RequestsResponse>("debug/requests?limit=1");
  return (response.requests[0]?.seq ?? -1) < newest;
}

export async function readRequest(id: string, signal?: AbortSignal): Promise<RequestDetail | undefined> {
  const response = await getJson<{ requests: RequestDetail[] }>(`debug/requests?id=${encodeURIComponent(id)}`, signal);
  return response.requests[0];
}

export function rowOf(record: RequestRecord): RequestRow {
  return { ...record, what: whatOf(record) };
}

function whatOf({ mcp, llm, method, path }: RequestRecord): string {
  if (mcp?.method !== undefined) return mcp.name === undefined ? mcp.method : `${mcp.method} ${mcp.name}`;
  if (llm?.model !== undefined) return `${llm.model} ${path}`;
  return `${method} ${path}`;
}
