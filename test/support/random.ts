/**
 * Random numbers that depend only on a seed, so that a test can be repeated. They are cheap, because a fuzz run draws
 * billions, and must not be used for secrets.
 */

/** Returns a function that returns numbers from 0 to below 1 (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    return mixed(state) / 2 ** 32;
  };
}

function mixed(state: number): number {
  let bits = Math.imul(state ^ (state >>> 15), state | 1);
  bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
  return (bits ^ (bits >>> 14)) >>> 0;
}

export class Random {
  #state: number;

  constructor(seed: number) {
    // Neighbouring seeds must not begin alike: they are what parallel runs get.
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) >>> 0;
  }

  /** 0 … 2^32 - 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    return mixed(this.#state);
  }

  /** 0 … below - 1. */
  int(below: number): number {
    return below <= 1 ? 0 : Math.floor((this.next() / 4294967296) * below);
  }

  /** True once in `n` times. */
  oneIn(n: number): boolean {
    return this.int(n) === 0;
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.int(values.length)] as Value;
  }

  /** 0 … most values. */
  list<Value>(most: number, make: () => Value): Value[] {
    const values: Value[] = [];
    for (let left = this.int(most + 1); left > 0; left--) values.push(make());
    return values;
  }

  text(pieces: readonly string[], most: number): string {
    let text = "";
    for (let left = this.int(most + 1); left > 0; left--) text += this.pick(pieces);
    return text;
  }
}

/** A seed from bytes: what a case chooses by itself, such as where to cut, is the same whenever it is run again. */
export function seedOf(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash >>> 0;
}
