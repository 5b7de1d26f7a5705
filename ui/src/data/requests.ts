/**
 * The recent requests, newest first. Asked for once per second with a bounded answer instead of being streamed:
 * a busy gateway then pays the same for an open page as an idle one.
 */
import { signal } from "@preact/signals";
import type { RequestDetail, RequestRecord } from "../../../src/observe/trace/request-record.ts";
import { page } from "../frame/router.ts";
import { getJson } from "./api.ts";
import { onReturn } from "./connection.ts";
import { createPoll } from "./poll.ts";

export type { RequestDetail, RequestRecord };

export interface RequestRow extends RequestRecord {
  /** What was asked for: a tool, a model, or method and path. */
  readonly what: string;
}

/** Where the table is read row by row, and where a few rows are enough. */
const TABLE = { intervalMs: 1_000, rows: 100 };
const ELSEWHERE = { intervalMs: 3_000, rows: 20 };
/** As many as the gateway tells in full at once; as many as it knows, and as a page keeps. */
const FIRST_ROWS = 500;
export const MAX_ROWS = 10_000;

interface Answer {
  readonly requests: readonly RequestRecord[];
  readonly inFlight: number;
}

let rows: readonly RequestRow[] = [];
/** A gateway that was away has usually started anew, and counts from the beginning. */
let wasAway = false;
onReturn(() => {
  wasAway = true;
});

/** Whether there may be older ones than those that are shown. */
export const hasOlder = signal(true);
export const isReadingOlder = signal(false);

export const inFlight = signal(0);
/** New requests wait while somebody reads; nothing moves under the pointer. */
export const isPaused = signal(false);

export const requestList = createPoll(
  () => (isPaused.value && rows.length > 0 ? Promise.resolve(rows) : newestRows()),
  () => pace().intervalMs,
);

async function newestRows(): Promise<readonly RequestRow[]> {
  const isAnew = wasAway;
  const newest = isAnew ? undefined : rows[0]?.seq;
  const since = newest === undefined ? "" : `&since=${newest}`;
  const answer = await getJson<Answer>(
    `debug/requests?limit=${newest === undefined ? FIRST_ROWS : pace().rows}${since}`,
  );
  // It was asked of the gateway that went and answered by the one that came: their numbers have nothing in common.
  if (wasAway && !isAnew) return newestRows();
  inFlight.value = answer.inFlight;
  if (isAnew) {
    rows = [];
    wasAway = false;
    hasOlder.value = true;
  }
  if (answer.requests.length === 0) {
    // A restarted gateway counts from the beginning.
    if (newest !== undefined && (await restarted(newest))) rows = [];
    return rows;
  }
  rows = [...answer.requests.map(rowOf), ...rows].slice(0, MAX_ROWS);
  return rows;
}

/** The next page of what the gateway remembers, behind what is shown. */
export async function readOlder(): Promise<void> {
  const last = rows.at(-1);
  if (isReadingOlder.peek() || !hasOlder.peek() || last === undefined) return;
  isReadingOlder.value = true;
  try {
    const before = encodeURIComponent(last.time);
    const { requests } = await getJson<Answer>(`debug/requests?before=${before}&limit=${FIRST_ROWS}`);
    hasOlder.value = requests.length > 0 && rows.length + requests.length < MAX_ROWS;
    rows = [...rows, ...requests.map(rowOf)].slice(0, MAX_ROWS);
    await requestList.refresh();
  } catch {
    // The banner says it; the button stays.
  } finally {
    isReadingOlder.value = false;
  }
}

function pace(): typeof TABLE {
  return page.peek() === "requests" ? TABLE : ELSEWHERE;
}

let looks = 0;

/** Looked at now and then only: it costs a request. */
async function restarted(newest: number): Promise<boolean> {
  looks += 1;
  if (looks % 5 !== 0) return false;
  const answer = await getJson<Answer>("debug/requests?limit=1");
  return (answer.requests[0]?.seq ?? -1) < newest;
}

export async function readRequest(id: string, signal?: AbortSignal): Promise<RequestDetail | undefined> {
  const answer = await getJson<{ requests: RequestDetail[] }>(`debug/requests?id=${encodeURIComponent(id)}`, signal);
  return answer.requests[0];
}

export function rowOf(record: RequestRecord): RequestRow {
  return { ...record, what: whatOf(record) };
}

function whatOf({ mcp, llm, method, path }: RequestRecord): string {
  if (mcp?.method !== undefined) return mcp.name === undefined ? mcp.method : `${mcp.method} ${mcp.name}`;
  if (llm?.model !== undefined) return `${llm.model} ${path}`;
  return `${method} ${path}`;
}
