/**
 * Keeps the first 64 KiB of a body for the trace while it passes; nothing is held back or slowed for it.
 */
import type { Exchange } from "../core/exchange.ts";
import type { BodyStage } from "../trace/events.ts";

const MAX_CAPTURED_BYTES = 64 * 1024;

export class BodyCapture {
  #chunks: Buffer[] = [];
  #bytes = 0;
  #truncated = false;

  add(chunk: Buffer): void {
    const room = MAX_CAPTURED_BYTES - this.#bytes;
    if (chunk.length > room) this.#truncated = true;
    if (room <= 0) return;
    const part = chunk.subarray(0, room);
    this.#chunks.push(part);
    this.#bytes += part.length;
  }

  emit(exchange: Exchange, stage: BodyStage): void {
    if (this.#bytes === 0) return;
    const body = Buffer.concat(this.#chunks).toString("base64");
    exchange.trace?.point({
      type: "bodySnapshot",
      stage,
      body,
      ...(this.#truncated ? { truncated: true as const } : {}),
    });
  }
}
