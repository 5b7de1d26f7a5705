/**
 * Reads the body of a request whole, up to a limit, as soon as there is memory for it. Rejects with 413 what is larger,
 * before reading it where its length is known, with 400 what ends early, and with 503 what there is no memory for.
 */

import { MemoryExhausted } from "../base/memory-budget.ts";
import { readAll } from "../http/body.ts";
import { GatewayError } from "./errors.ts";
import type { Exchange, RequestBody } from "./exchange.ts";
import { asGatewayError } from "./reply.ts";

export type StreamedBody = Extract<RequestBody, { kind: "stream" }>;

const RETRY_SECONDS = "5";

export function readBody(exchange: Exchange, body: StreamedBody, maxBytes: number): Promise<Buffer> {
  if (body.length !== undefined && body.length > maxBytes) return Promise.reject(new GatewayError("body_too_large"));
  body.taken = true;
  return readAll(body.stream, maxBytes, body.length, { room: exchange.bodyRoom() }).catch((error: unknown) => {
    throw error instanceof MemoryExhausted ? noMemoryFor(error) : asGatewayError(error);
  });
}

/** There is no memory for the body of a request. */
export function noMemoryFor(cause: MemoryExhausted): GatewayError {
  return new GatewayError("overloaded", { detail: cause.message, headers: { "retry-after": RETRY_SECONDS }, cause });
}
