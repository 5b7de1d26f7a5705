/**
 * Detects HTTP/2 with prior knowledge (RFC 9113 section 3.3) from the first bytes of a connection.
 */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const R = 0x52;

export interface Opened {
  readonly isHttp2: boolean;
  readonly bytes: Buffer;
}

export class Opening {
  #held: Buffer | undefined = undefined;

  /** Returns undefined while both protocols are possible. */
  look(chunk: Buffer): Opened | undefined {
    const bytes = this.#held === undefined ? chunk : Buffer.concat([this.#held, chunk]);
    // Two bytes are enough for nearly all connections.
    if (bytes[0] !== PREFACE[0] || (bytes.length > 1 && bytes[1] !== R)) return { isHttp2: false, bytes };
    const length = Math.min(bytes.length, PREFACE.length);
    if (!bytes.subarray(0, length).equals(PREFACE.subarray(0, length))) return { isHttp2: false, bytes };
    if (length === PREFACE.length) return { isHttp2: true, bytes };
    this.#held = bytes;
    return undefined;
  }
}
