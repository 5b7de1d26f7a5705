/**
 * Joins bytes that arrive in many pieces. The space doubles, so the cost is proportional to the bytes, not to the bytes
 * times the pieces.
 */
export class JoinedBytes {
  #space: Buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Returns all bytes since `clear`. Neither `add` nor `clear` changes them. */
  get all(): Buffer {
    return this.#space.subarray(0, this.#length);
  }

  add(piece: Buffer): Buffer {
    const length = this.#length + piece.length;
    if (length > this.#space.length) {
      const space = Buffer.allocUnsafeSlow(this.#length === 0 ? length : 2 * length);
      this.#space.copy(space, 0, 0, this.#length);
      this.#space = space;
    }
    piece.copy(this.#space, this.#length);
    this.#length = length;
    return this.all;
  }

  clear(): void {
    if (this.#length === 0) return;
    this.#space = Buffer.alloc(0);
    this.#length = 0;
  }
}
