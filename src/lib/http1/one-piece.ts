/**
 * The data of the chunks of one read, moved together in place: one piece for everybody behind the parser. A stream has
 * hundreds of chunks, and a busy reader finds several of them in each read.
 */
export class OnePiece {
  #from = 0;
  #to = 0;

  add(read: Buffer, at: number, end: number): void {
    if (this.#to === 0) {
      this.#from = at;
      this.#to = end;
    } else {
      read.copyWithin(this.#to, at, end);
      this.#to += end - at;
    }
  }

  /** What was added of this read; undefined if it was nothing. */
  take(read: Buffer): Buffer | undefined {
    const from = this.#from;
    const to = this.#to;
    if (to === 0) return undefined;
    this.#to = 0;
    return from === 0 && to === read.length ? read : read.subarray(from, to);
  }
}
