/**
 * One value of a JSON text that is being kept while the text comes in pieces. A value above the limit is not held:
 * only its place is known then.
 */

export interface JsonSpan {
  /** Offsets over all bytes pushed so far; the value without surrounding white space. */
  readonly start: number;
  readonly end: number;
}

export class JsonCapture {
  /** The name of the value that is being kept. */
  key: string | undefined = undefined;
  readonly #maxBytes: number;
  #start = -1;
  #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  begin(key: string, start: number): void {
    this.key = key;
    this.#start = start;
    this.#pieces = [];
    this.#bytes = 0;
  }

  /** The chunk at this offset is used up. */
  keep(chunk: Buffer, offset: number): void {
    const piece = this.#start > offset ? chunk.subarray(this.#start - offset) : chunk;
    this.#bytes += piece.length;
    if (this.#bytes <= this.#maxBytes) this.#pieces.push(piece);
  }

  /** The value ended before `end`, inside of the chunk at this offset. */
  end(chunk: Buffer, offset: number, end: number): { span: JsonSpan; bytes: Buffer | undefined } {
    this.key = undefined;
    // In broken JSON there may be nothing where a value should be.
    const span = { start: this.#start, end: Math.max(this.#start, end) };
    const bytes = this.#valueOf(chunk, offset, span);
    this.#pieces = [];
    return { span, bytes };
  }

  #valueOf(chunk: Buffer, offset: number, span: JsonSpan): Buffer | undefined {
    const size = span.end - span.start;
    if (size > this.#maxBytes) return undefined;
    if (this.#pieces.length === 0) return chunk.subarray(span.start - offset, span.end - offset);
    const whole = Buffer.concat([...this.#pieces, chunk.subarray(0, Math.max(0, span.end - offset))]);
    return whole.length > size ? whole.subarray(0, size) : whole;
  }
}
