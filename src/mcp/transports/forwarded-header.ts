/**
 * Validates names of client headers that the configuration forwards to a server. Headers of the protocol and the
 * connection are rejected, because the gateway sets them itself.
 */
import { headerName } from "../../core/schema.ts";
import { foldHeaderName, HOP_BY_HOP_HEADERS } from "../../http/header-rules.ts";

/** Set by the gateway; a client's value would contradict the message or the connection. */
const PROTOCOL_HEADERS: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP_HEADERS,
  ...["host", "expect", "date", "accept", "accept-encoding", "last-event-id"],
  ...["proxy-authenticate", "proxy-authorization"],
]);
const PROTOCOL_PREFIXES = ["mcp-", "content-", "sec-"];

function isProtocolHeader(name: string): boolean {
  const folded = foldHeaderName(name);
  return PROTOCOL_HEADERS.has(folded) || PROTOCOL_PREFIXES.some((prefix) => folded.startsWith(prefix));
}

export function forwardedHeaderName() {
  return headerName().refine(
    (name) => !isProtocolHeader(name),
    "the gateway writes this header itself: it belongs to the protocol or the connection",
  );
}
