/**
 * Keeps the first 64 KiB of a body for the trace while it passes; nothing is held back or slowed for it. Tokens and
 * secrets of OAuth endpoints are taken out when it is shown.
 */
import type { Readable } from "node:stream";
import type { Exchange } from "../../core/exchange.ts";
import type { BodyStage } from "../../trace/events.ts";
import { redactBody } from "../../trace/redact.ts";

const MAX_CAPTURED_BYTES = 64 * 1024;

export class BodyCapture {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #truncated = false;
  #emitted = false;

  add(chunk: Buffer): void {
    const room = MAX_CAPTURED_BYTES - this.#bytes;
    if (chunk.length > room) this.#truncated = true;
    if (room <= 0) return;
    const part = chunk.subarray(0, room);
    this.#chunks.push(part);
    this.#bytes += part.length;
  }

  /** Once; an empty body has no snapshot. */
  emit(exchange: Exchange, stage: BodyStage): void {
    if (this.#bytes === 0 || this.#emitted) return;
    this.#emitted = true;
    const headers = stage === "response" ? exchange.response?.headers : exchange.request.headers;
    const body = redactBody(Buffer.concat(this.#chunks), headers?.get("content-type")).toString("base64");
    this.#chunks = [];
    exchange.trace?.point({
      type: "bodySnapshot",
      stage,
      body,
      ...(this.#truncated ? { truncated: true as const } : {}),
    });
  }
}

/** The body of a traced request on its way to the backend: at once if it is whole, else while it streams. */
export function captureRequestBody(exchange: Exchange): void {
  const { body } = exchange.request;
  if (body.kind === "none") return;
  const capture = new BodyCapture();
  if (body.kind === "bytes") {
    capture.add(body.bytes);
    capture.emit(exchange, "final request");
    return;
  }
  observeChunks(body.stream, (chunk) => capture.add(chunk));
  const done = (): void => capture.emit(exchange, "final request");
  body.stream.once("end", done);
  body.stream.once("close", done);
}

/**
 * Sees chunks as their reader gets them. A second `data` listener would start the stream before the reader is
 * ready, and a stream in between would buffer more than without a trace: so the event itself is looked at.
 */
function observeChunks(stream: Readable, seen: (chunk: Buffer) => void): void {
  const emit = stream.emit.bind(stream);
  stream.emit = (event: string | symbol, ...values: unknown[]): boolean => {
    if (event === "data") seen(values[0] as Buffer);
    return emit(event, ...values);
  };
}
