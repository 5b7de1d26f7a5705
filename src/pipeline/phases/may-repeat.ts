/**
 * Whether a request whose attempt failed may be sent again. By default only what certainly did nothing is: a connection that was
 * never made, or a kept one that turned out to be closed under an idempotent request (RFC 9110 section 9.2.2). A retry policy
 * widens that.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import { HttpClientError } from "../../http/http-client.ts";

/** Safe to send twice (RFC 9110 section 9.2.2). */
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

export function isIdempotent({ method }: GatewayRequest): boolean {
  return IDEMPOTENT.has(method);
}

export function mayRepeat(request: GatewayRequest, nothingSent: boolean, error?: unknown): boolean {
  if (request.body.kind === "stream" && request.body.taken) return false;
  if (isIdempotent(request)) return true;
  const connectFailed =
    error instanceof HttpClientError && (error.kind === "connect" || error.kind === "connect-timeout");
  // The operator named the status: the backend refused the request, it did not lose it.
  return connectFailed || (nothingSent && error === undefined);
}
