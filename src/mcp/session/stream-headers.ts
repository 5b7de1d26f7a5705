/**
 * The head of every event stream: of a session, and of a request that stands alone. It keeps caches and proxies from
 * holding events back.
 */
import { HeaderList } from "../../http/headers.ts";

/** `x-accel-buffering` asks reverse proxies not to collect the events first. */
const COMMON = [
  "content-type",
  "text/event-stream",
  "cache-control",
  "no-cache, no-transform",
  "x-accel-buffering",
  "no",
];

export function eventStreamHeaders(sessionId: string | undefined): HeaderList {
  const headers = new HeaderList(COMMON.slice(), true);
  if (sessionId !== undefined) headers.add("mcp-session-id", sessionId);
  return headers;
}
