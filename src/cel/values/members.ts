/**
 * Wraps a JSON object from a client as a CEL map with unambiguous keys. The upstream server may ignore the case of keys
 * and read `Path` where a rule reads `path`. Therefore, reading a key that exists in another spelling, or in several,
 * fails the whole evaluation, even inside `has()`, `default()`, or `||`. So does reading a number that `JSON.parse` rounds,
 * because many servers read it exactly.
 */
import type { CelError, CelValue } from "@bufbuild/cel";
import { foldCase } from "../../json/syntax.ts";
import { MAP_MARK, requireExact, toCel, UnreadableValue } from "./values.ts";

/** Wraps objects, also inside lists, and returns other values unchanged. The result is opaque outside this folder. */
export function celMembers(value: unknown): unknown {
  if (typeof value === "number") requireExact(value);
  if (typeof value !== "object" || value === null) return value;
  return Array.isArray(value) ? value.map(celMembers) : new MemberMap(value as Readonly<Record<string, unknown>>);
}

class MemberMap {
  readonly #members: Readonly<Record<string, unknown>>;
  #spellings: Map<string, string[]> | undefined;

  constructor(members: Readonly<Record<string, unknown>>) {
    this.#members = members;
  }

  get [MAP_MARK](): true {
    return true;
  }

  get size(): number {
    return this.keys().length;
  }

  get(key: unknown): CelValue | CelError | undefined {
    if (typeof key !== "string") return undefined;
    const spellings = this.#spelled().get(foldCase(key));
    if (spellings === undefined) return undefined;
    const other = spellings.find((one) => one !== key);
    if (other !== undefined)
      throw new UnreadableValue(`the key ${JSON.stringify(other)} must be written ${JSON.stringify(key)}, and once`);
    const value = celMembers(this.#members[key]);
    return value === undefined ? undefined : toCel(value);
  }

  has(key: unknown): boolean {
    return this.get(key) !== undefined;
  }

  keys(): string[] {
    return [...this.#spelled().values()].map((spellings) => {
      const [key = "", other] = spellings;
      if (other !== undefined)
        throw new UnreadableValue(`the keys ${JSON.stringify(key)} and ${JSON.stringify(other)} differ only in case`);
      return key;
    });
  }

  *entries(): IterableIterator<[string, CelValue]> {
    for (const key of this.keys()) yield [key, toCel(celMembers(this.#members[key]) ?? null)];
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

  #spelled(): ReadonlyMap<string, string[]> {
    if (this.#spellings !== undefined) return this.#spellings;
    const spellings = new Map<string, string[]>();
    for (const key of Object.keys(this.#members)) {
      const folded = foldCase(key);
      const known = spellings.get(folded);
      if (known === undefined) spellings.set(folded, [key]);
      else known.push(key);
    }
    this.#spellings = spellings;
    return spellings;
  }
}
