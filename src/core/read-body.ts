/**
 * Buffers a request body up to a limit, within the memory budget. Rejects with 413 if the body is larger (before
 * reading it, if its length is declared), with 400 if it ends early, and with 503 if the memory budget is exhausted.
 */
import { MemoryExhausted } from "../base/memory-budget.ts";
import type { PeerInput } from "../base/peer-inputs.ts";
import { readAll } from "../http/body.ts";
import { GatewayError } from "./errors.ts";
import type { Exchange, RequestBody } from "./exchange.ts";
import { asGatewayError } from "./reply.ts";

export type StreamedBody = Extract<RequestBody, { kind: "stream" }>;

const RETRY_SECONDS = "5";

export function readBody(exchange: Exchange, body: StreamedBody, input: PeerInput): Promise<Buffer> {
  if (body.length !== undefined && body.length > input.maxBytes)
    return Promise.reject(new GatewayError("body_too_large"));
  body.taken = true;
  return readAll(body.stream, input, body.length, { memory: exchange.bodyReservation() }).catch((error: unknown) => {
    throw error instanceof MemoryExhausted ? noMemoryFor(error) : asGatewayError(error);
  });
}

export function noMemoryFor(cause: MemoryExhausted): GatewayError {
  return new GatewayError("overloaded", { detail: cause.message, headers: { "retry-after": RETRY_SECONDS }, cause });
}
