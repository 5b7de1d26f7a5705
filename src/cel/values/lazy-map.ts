/**
 * Implements a CEL map with known fields that are computed on demand, so that an expression pays only for the fields
 * it reads.
 */
import type { CelError, CelValue } from "@bufbuild/cel";
import { evaluationError, isCelError, MAP_MARK, toCel, UnreadableValue } from "./values.ts";

export type LazyFields<Subject> = ReadonlyMap<string, (subject: Subject) => unknown>;

/** The result is opaque outside this folder. Attributes can contain it in place of a JSON value. */
export function celFields<Subject>(subject: Subject, fields: LazyFields<Subject>): object {
  return new LazyMap(subject, fields);
}

class LazyMap<Subject> {
  readonly #subject: Subject;
  readonly #fields: LazyFields<Subject>;

  constructor(subject: Subject, fields: LazyFields<Subject>) {
    this.#subject = subject;
    this.#fields = fields;
  }

  get [MAP_MARK](): true {
    return true;
  }

  get size(): number {
    return this.keys().length;
  }

  /** Converts exceptions other than UnreadableValue to evaluation errors, so that `default()` can handle them. */
  get(key: unknown): CelValue | CelError | undefined {
    const read = typeof key === "string" ? this.#fields.get(key) : undefined;
    if (read === undefined) return undefined;
    try {
      const value = read(this.#subject);
      return value === undefined ? undefined : toCel(value);
    } catch (error) {
      if (error instanceof UnreadableValue) throw error;
      return evaluationError(error instanceof Error ? error.message : `${key} cannot be read`);
    }
  }

  has(key: unknown): boolean | CelError {
    const value = this.get(key);
    return isCelError(value) ? value : value !== undefined;
  }

  keys(): string[] {
    return [...this.#fields.keys()].filter((key) => this.get(key) !== undefined);
  }

  *entries(): IterableIterator<[string, CelValue]> {
    for (const key of this.#fields.keys()) {
      const value = this.get(key);
      if (isCelError(value)) throw value;
      if (value !== undefined) yield [key, value];
    }
  }

  *values(): IterableIterator<CelValue> {
    for (const [, value] of this.entries()) yield value;
  }

  forEach(callback: (value: CelValue, key: string, map: unknown) => void): void {
    for (const [key, value] of this.entries()) callback(value, key, this);
  }

  [Symbol.iterator](): IterableIterator<[string, CelValue]> {
    return this.entries();
  }
}
