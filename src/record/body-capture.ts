/**
 * Captures the first 64 KiB of a body for the trace without delaying it.
 */

import type { RequestBody } from "../core/exchange.ts";
import { type BodyStream, observeChunks } from "../http/body.ts";
import type { BodyStage } from "./trace/events.ts";
import { redactBody } from "./trace/redact.ts";
import type { Trace } from "./trace/trace.ts";

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

  /** Emits at most one snapshot, and none for an empty body. */
  emit(trace: Trace | undefined, stage: BodyStage, contentType: string | undefined): void {
    if (this.#bytes === 0 || this.#emitted) return;
    this.#emitted = true;
    const body = redactBody(Buffer.concat(this.#chunks), contentType).toString("base64");
    this.#chunks = [];
    trace?.point({
      type: "bodySnapshot",
      stage,
      body,
      ...(this.#truncated ? { truncated: true as const } : {}),
    });
  }
}

/** Captures the body of a traced request, immediately if it is buffered and otherwise while it streams. */
export function captureSentBody(
  trace: Trace,
  body: Buffer | BodyStream | undefined,
  contentType: string | undefined,
): void {
  if (body === undefined) return;
  const capture = new BodyCapture();
  const done = (): void => capture.emit(trace, "final request", contentType);
  if (Buffer.isBuffer(body)) {
    capture.add(body);
    done();
    return;
  }
  observeChunks(body, (chunk) => capture.add(chunk));
  body.once("end", done);
  body.once("close", done);
}

export function bodyBytes(body: RequestBody): Buffer | BodyStream | undefined {
  return body.kind === "bytes" ? body.bytes : body.kind === "stream" ? body.stream : undefined;
}
