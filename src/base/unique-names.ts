/**
 * Makes names unique with a number. Each number is tried once, so that many equal names take linear time.
 */

export class UniqueNames {
  readonly #maxBaseChars: number;
  readonly #taken = new Set<string>();
  readonly #nextNumber = new Map<string, number>();

  constructor(maxBaseChars = Number.POSITIVE_INFINITY) {
    this.#maxBaseChars = maxBaseChars;
  }

  has(name: string): boolean {
    return this.#taken.has(name);
  }

  next(base: string): string {
    const stem = base.slice(0, this.#maxBaseChars);
    let name = base;
    let number = this.#nextNumber.get(stem) ?? 2;
    while (this.#taken.has(name)) name = `${stem}_${number++}`;
    this.#nextNumber.set(stem, number);
    this.#taken.add(name);
    return name;
  }
}
