/**
 * Validates the names of client headers that the configuration forwards to a server. Protocol and connection headers
 * are rejected.
 */
import { headerName } from "../../core/schema.ts";
import { foldHeaderName, HOP_BY_HOP_HEADERS } from "../../http/header-rules.ts";

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
