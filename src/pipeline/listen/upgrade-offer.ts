/**
 * What becomes of a request that asks for an upgrade. WebSocket is passed on; any other offer (clients make one of
 * h2c with their first request) is ignored, as RFC 9110 section 7.8 allows.
 */
import type { ParsedRequest } from "../../http/h1/parse-request-head.ts";

/**
 * The only upgrade that is passed on. It needs HTTP/1.1 (RFC 9110 section 7.8), has no body and so nothing to expect
 * (section 10.1.1), names one protocol, and does not ask for the connection's end. Everything else is answered as if
 * nothing were offered.
 */
export function isWebSocket(request: ParsedRequest): boolean {
  return (
    request.upgrade !== undefined &&
    request.upgrade.toLowerCase() === "websocket" &&
    request.method === "GET" &&
    request.version === "1.1" &&
    request.expects === "nothing" &&
    request.fault === undefined &&
    !request.isChunked &&
    (request.contentLength ?? 0) === 0 &&
    request.keepAlive
  );
}
