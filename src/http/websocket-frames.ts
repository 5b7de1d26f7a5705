/**
 * Where the frames of a WebSocket begin and end (RFC 6455 section 5.2), without keeping any of their content: enough
 * to put a close frame between two frames of somebody else. It checks nothing: the two ends do that.
 */
const CLOSE = 0x8;
const MAX_HEADER_BYTES = 14;

/** 1001: the endpoint is going away (RFC 6455 section 7.4.1). */
const GOING_AWAY = [0x03, 0xe9] as const;

export class FrameCounter {
  readonly #header = Buffer.alloc(MAX_HEADER_BYTES);
  #headerBytes = 0;
  #payloadLeft = 0;
  #hasClosed = false;

  /** Between two frames: another one may be put here. */
  get isAtBoundary(): boolean {
    return this.#headerBytes === 0 && this.#payloadLeft === 0;
  }

  /** A close frame was seen: nothing may follow it. */
  get hasClosed(): boolean {
    return this.#hasClosed;
  }

  /** Reads on, to the next boundary if asked to; returns how many bytes it read. */
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

/** A close frame as a server sends it, or (masked) as a client does. */
export function closeFrame(from: "client" | "server"): Buffer {
  // The mask hides nothing here: it is required of clients, and this one is theirs in form only.
  if (from === "client") return Buffer.from([0x88, 0x82, 0, 0, 0, 0, ...GOING_AWAY]);
  return Buffer.from([0x88, 0x02, ...GOING_AWAY]);
}
