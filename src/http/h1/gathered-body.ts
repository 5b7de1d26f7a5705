/**
 * The body bytes of one read: chunks that arrived together are moved together, over the framing between them, and handed on
 * as one piece. Each piece costs all that follows as much as a large one.
 */
export class GatheredBody {
  #from = 0;
  /** 0: there are none. */
  #end = 0;

  /** The bytes are overwritten where others stood. */
  add(chunk: Buffer, from: number, to: number): void {
    if (this.#end === 0) {
      this.#from = from;
      this.#end = to;
      return;
    }
    chunk.copyWithin(this.#end, from, to);
    this.#end += to - from;
  }

  /** What was added of this chunk, once. */
  take(chunk: Buffer): Buffer | undefined {
    const end = this.#end;
    if (end === 0) return undefined;
    this.#end = 0;
    return this.#from === 0 && end === chunk.length ? chunk : chunk.subarray(this.#from, end);
  }
}
