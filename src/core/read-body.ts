/**
 * Reads the body of a request whole, up to a limit. Rejects with 413 what is larger, before reading it where its length
 * is known, and with 400 what ends early.
 */
import { readAll } from "../lib/http/body.ts";
import { GatewayError } from "./errors.ts";
import type { RequestBody } from "./exchange.ts";
import { asGatewayError } from "./reply.ts";

export type StreamedBody = Extract<RequestBody, { kind: "stream" }>;

export function readBody(body: StreamedBody, maxBytes: number): Promise<Buffer> {
  if (body.length !== undefined && body.length > maxBytes) return Promise.reject(new GatewayError("body_too_large"));
  body.taken = true;
  return readAll(body.stream, maxBytes, body.length).catch((error: unknown) => {
    throw asGatewayError(error);
  });
}
