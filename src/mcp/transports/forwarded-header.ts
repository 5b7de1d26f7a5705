/**
 * Which headers of a client may be configured to reach a server: not those that belong to the protocol or to the
 * connection, because the gateway writes them itself.
 */
import { headerName } from "../../core/schema.ts";

/** What the gateway says to a server in its own name: a client's value would contradict the message or the connection. */
const PROTOCOL_HEADERS: ReadonlySet<string> = new Set([
  ...["host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "date"],
  ...["accept", "accept-encoding", "last-event-id", "proxy-connection", "proxy-authenticate", "proxy-authorization"],
]);
const PROTOCOL_PREFIXES = ["mcp-", "content-", "sec-"];

function isProtocolHeader(name: string): boolean {
  return PROTOCOL_HEADERS.has(name) || PROTOCOL_PREFIXES.some((prefix) => name.startsWith(prefix));
}

export function forwardedHeaderName() {
  return headerName().refine(
    (name) => !isProtocolHeader(name),
    "the gateway writes this header itself: it belongs to the protocol or the connection",
  );
}
