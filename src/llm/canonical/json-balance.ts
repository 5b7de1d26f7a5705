/**
 * Whether a JSON object that comes in pieces is complete: by its brackets alone, in one pass over each piece.
 */

export class JsonBalance {
  #depth = 0;
  #inString = false;
  #isEscaped = false;
  #hasBegun = false;

  get isComplete(): boolean {
    return this.#hasBegun && this.#depth === 0;
  }

  push(text: string): void {
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#inString) {
        if (code === 92) this.#isEscaped = true;
        else if (code === 34) this.#inString = false;
      } else if (code === 34) this.#inString = true;
      else if (code === 123 || code === 91) {
        this.#depth += 1;
        this.#hasBegun = true;
      } else if (code === 125 || code === 93) this.#depth -= 1;
    }
  }
}
