/**
 * Tracks the frame boundaries of a WebSocket (RFC 6455 section 5.2) without retaining content, so that a close frame
 * can be inserted between two frames.
 */
import type { PeerInput } from "../base/peer-inputs.ts";

const CLOSE = 0x8;

/** Status code 1001 means that the endpoint is going away (RFC 6455 section 7.4.1). */
const GOING_AWAY = [0x03, 0xe9] as const;

export class FrameCounter {
  readonly #header: Buffer;
  #headerBytes = 0;
  #payloadLeft = 0;
  #hasClosed = false;

  constructor({ maxBytes }: PeerInput<"WebSocket">) {
    this.#header = Buffer.alloc(maxBytes);
  }

  get isAtBoundary(): boolean {
    return this.#headerBytes === 0 && this.#payloadLeft === 0;
  }

  get hasClosed(): boolean {
    return this.#hasClosed;
  }

  /** Advances over the chunk, or to the next boundary with `toBoundary`. Returns the number of bytes consumed. */
  read(chunk: Buffer, toBoundary = false): number {
    let at = 0;
    while (at < chunk.length) {
      if (toBoundary && this.isAtBoundary) return at;
      if (this.#payloadLeft > 0) {
        const taken = Math.min(this.#payloadLeft, chunk.length - at);
        this.#payloadLeft -= taken;
        at += taken;
      } else {
        this.#header[this.#headerBytes] = chunk[at] as number;
        this.#headerBytes += 1;
        at += 1;
        this.#readHeader();
      }
    }
    return at;
  }

  #readHeader(): void {
    if (this.#headerBytes < 2) return;
    const header = this.#header;
    const short = (header[1] as number) & 0x7f;
    const lengthBytes = short === 127 ? 8 : short === 126 ? 2 : 0;
    const maskBytes = ((header[1] as number) & 0x80) === 0 ? 0 : 4;
    if (this.#headerBytes < 2 + lengthBytes + maskBytes) return;
    this.#headerBytes = 0;
    if (lengthBytes === 0) this.#payloadLeft = short;
    else this.#payloadLeft = lengthBytes === 2 ? header.readUInt16BE(2) : Number(header.readBigUInt64BE(2));
    if (((header[0] as number) & 0x0f) === CLOSE) this.#hasClosed = true;
  }
}

export function closeFrame(from: "client" | "server"): Buffer {
  // Clients must mask frames. A mask of zeros is sufficient.
  if (from === "client") return Buffer.from([0x88, 0x82, 0, 0, 0, 0, ...GOING_AWAY]);
  return Buffer.from([0x88, 0x02, ...GOING_AWAY]);
}
