/**
 * Converts between JavaScript values and CEL values. `toCel` wraps JSON trees lazily instead of copying them, and
 * only own properties are visible.
 */
import { createRequire } from "node:module";
import type { CelError, CelList, CelMap, CelValue } from "@bufbuild/cel";
import { onDemand } from "../../base/on-demand.ts";

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./cel-library.ts")>(() => require("./cel-library.js"));

/**
 * The library identifies its values by these symbols, and a test checks that it still does. The library's own wrapper for
 * native maps reports keys with a null value as absent, and it has no lazy list. The checks below exist because a static
 * import of the library's own would load all of it at the start.
 */
export const MAP_MARK: unique symbol = Symbol.for("@bufbuild/cel/map");
const LIST_MARK: unique symbol = Symbol.for("@bufbuild/cel/list");
const UINT_MARK: unique symbol = Symbol.for("@bufbuild/cel/uint");
const TYPE_MARK: unique symbol = Symbol.for("@bufbuild/cel/type");
const ERROR_MARK: unique symbol = Symbol.for("@bufbuild/cel/error");

export function isCelMap(value: unknown): value is CelMap {
  return typeof value === "object" && value !== null && MAP_MARK in value;
}

export function isCelList(value: unknown): value is CelList {
  return typeof value === "object" && value !== null && LIST_MARK in value;
}

export function isCelError(value: unknown): value is CelError {
  return typeof value === "object" && value !== null && ERROR_MARK in value;
}

function evaluationError(message: string): CelError {
  return library().celError(message);
}

/** Converts safe integers to ints, other numbers to doubles, dates to timestamps, and byte arrays to bytes. */
export function toCel(value: unknown): CelValue {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "bigint":
      return value;
    case "number":
      return Number.isSafeInteger(value) ? BigInt(value) : value;
    case "object":
      return value === null ? null : objectToCel(value);
    default:
      throw new Error(`a ${typeof value} cannot be read`);
  }
}

/** Like `toCel`, for text of a peer: reading a number that `JSON.parse` rounds fails the whole evaluation. */
export function exactToCel(value: unknown): CelValue {
  if (typeof value === "number") requireExact(value);
  if (typeof value !== "object" || value === null) return toCel(value);
  return Array.isArray(value) ? jsonList(value, exactToCel) : jsonMap(value, exactToCel);
}

/** The digits of fractions are rounded everywhere, but integers can be identifiers. */
export function requireExact(value: number): void {
  if (Number.isSafeInteger(value) || (!Number.isInteger(value) && Number.isFinite(value))) return;
  throw new UnreadableValue(`the number ${value} is beyond 2^53, so it may not be the exact value`);
}

export function emptyMap(): CelMap {
  return jsonMap({}, toCel);
}

function objectToCel(value: object): CelValue {
  if (Array.isArray(value)) return jsonList(value, toCel);
  if (isCelMap(value) || isCelList(value)) return value;
  if (UINT_MARK in value || TYPE_MARK in value) return value as unknown as CelValue;
  if (value instanceof Uint8Array || library().isReflectMessage(value)) return value;
  if (value instanceof Date) return library().timestamp(value);
  return jsonMap(value, toCel);
}

type Convert = (value: unknown) => CelValue;

function jsonMap(value: object, convert: Convert): CelMap {
  return new JsonMap(value as Record<string, unknown>, convert) as unknown as CelMap;
}

function jsonList(value: readonly unknown[], convert: Convert): CelList {
  return new JsonList(value, convert) as unknown as CelList;
}

/** Thrown for ambiguous values. It fails the whole evaluation, even inside `||` or `default()`. */
export class UnreadableValue extends Error {}

/** Converts exceptions other than UnreadableValue to evaluation errors, so that `default()` can handle them. */
function readProperty(owner: Record<string, unknown>, key: string, convert: Convert): CelValue | CelError | undefined {
  try {
    if (!Object.hasOwn(owner, key)) return undefined;
    const value = owner[key];
    return value === undefined || typeof value === "function" ? undefined : convert(value);
  } catch (error) {
    if (error instanceof UnreadableValue) throw error;
    return evaluationError(error instanceof Error ? error.message : "the value cannot be read");
  }
}

class JsonMap {
  readonly #owner: Record<string, unknown>;
  readonly #convert: Convert;

  constructor(owner: Record<string, unknown>, convert: Convert) {
    this.#owner = owner;
    this.#convert = convert;
  }

  get [MAP_MARK](): true {
    return true;
  }

  get size(): number {
    return this.keys().length;
  }

  get(key: unknown): CelValue | CelError | undefined {
    return typeof key === "string" ? readProperty(this.#owner, key, this.#convert) : undefined;
  }

  has(key: unknown): boolean | CelError {
    const value = this.get(key);
    return isCelError(value) ? value : value !== undefined;
  }

  keys(): string[] {
    return Object.keys(this.#owner).filter((key) => readProperty(this.#owner, key, this.#convert) !== undefined);
  }

  *entries(): IterableIterator<[string, CelValue]> {
    for (const key of Object.keys(this.#owner)) {
      const value = readProperty(this.#owner, key, this.#convert);
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

class JsonList {
  readonly #items: readonly unknown[];
  readonly #convert: Convert;

  constructor(items: readonly unknown[], convert: Convert) {
    this.#items = items;
    this.#convert = convert;
  }

  get [LIST_MARK](): true {
    return true;
  }

  get size(): number {
    return this.#items.length;
  }

  get(index: number): CelValue | undefined {
    return Number.isInteger(index) && index >= 0 && index < this.size
      ? this.#convert(this.#items[index] ?? null)
      : undefined;
  }

  *values(): IterableIterator<CelValue> {
    for (const item of this.#items) yield this.#convert(item ?? null);
  }

  [Symbol.iterator](): IterableIterator<CelValue> {
    return this.values();
  }
}

/**
 * Holds the result of `map` and `filter`. The library concatenates in each iteration, which builds a chain as deep as
 * the list is long. This list grows in place, because no other code sees the unfinished result.
 */
export class GrowingList {
  readonly #items: CelValue[] = [];

  static append(list: CelValue, item: CelValue): CelList {
    const target = list instanceof GrowingList ? list : new GrowingList();
    target.#items.push(item);
    return target as unknown as CelList;
  }

  get [LIST_MARK](): true {
    return true;
  }

  get size(): number {
    return this.#items.length;
  }

  get(index: number): CelValue | undefined {
    return this.#items[index];
  }

  values(): IterableIterator<CelValue> {
    return this.#items.values();
  }

  [Symbol.iterator](): IterableIterator<CelValue> {
    return this.#items.values();
  }
}

export type LazyFields<Subject> = ReadonlyMap<string, (subject: Subject) => unknown>;

/** The result is opaque outside this folder. Attributes can contain it in place of a JSON value. */
export function celFields<Subject>(subject: Subject, fields: LazyFields<Subject>): object {
  return new LazyMap(subject, fields);
}

/** A CEL map with known fields that are computed on demand, so that an expression pays only for the fields it reads. */
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
