/**
 * Reads a request body of known or unknown length into one buffer. Where the length is known the buffer is made
 * once, so that 20 MB of images are held once and not twice.
 */
import { GatewayError } from "../../../core/errors.ts";
import type { RequestBody } from "../../../core/exchange.ts";
import { BodyTooLarge, readAll } from "../../../lib/http/body.ts";

export function readBody(body: Extract<RequestBody, { kind: "stream" }>, maxBytes: number): Promise<Buffer> {
  if (body.length !== undefined && body.length > maxBytes) return Promise.reject(new GatewayError("body_too_large"));
  body.taken = true;
  const { stream, length } = body;
  if (length === undefined) {
    return readAll(stream, maxBytes).catch((error) => {
      throw error instanceof BodyTooLarge ? new GatewayError("body_too_large") : error;
    });
  }
  return new Promise((resolve, reject) => {
    const bytes = Buffer.allocUnsafeSlow(length);
    let filled = 0;
    const incomplete = (): void =>
      reject(new GatewayError("bad_request", { message: "bad request: the body ended early" }));
    stream.on("data", (chunk: Buffer) => {
      chunk.copy(bytes, filled);
      filled += chunk.length;
    });
    stream.on("end", () => (filled === length ? resolve(bytes) : incomplete()));
    stream.on("error", incomplete);
    stream.on("close", incomplete);
  });
}
