/**
 * Converts between JavaScript values and CEL values. `toCel` wraps JSON trees lazily instead of copying them, and
 * only own properties are visible.
 */
import {
  type CelError,
  type CelList,
  type CelMap,
  type CelValue,
  celError,
  isCelError,
  isCelList,
  isCelMap,
  isCelType,
  isCelUint,
} from "@bufbuild/cel";
import { isMessage, toJson } from "@bufbuild/protobuf";
import { isReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { DurationSchema, TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";

export type CelOutput = null | boolean | number | string | CelOutput[] | { [key: string]: CelOutput };

const MAX_OUTPUT_DEPTH = 128;
export const MAX_OUTPUT_VALUES = 1_000_000;

/**
 * The library identifies its maps and lists by these symbols, and a test checks that it still does. The library's own
 * wrapper for native maps reports keys with a null value as absent, and it has no lazy list.
 */
export const MAP_MARK: unique symbol = Symbol.for("@bufbuild/cel/map");
const LIST_MARK: unique symbol = Symbol.for("@bufbuild/cel/list");

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

export function emptyMap(): CelMap {
  return jsonMap({});
}

function objectToCel(value: object): CelValue {
  if (Array.isArray(value)) return jsonList(value);
  if (isCelMap(value) || isCelList(value) || isCelUint(value) || isCelType(value)) return value;
  if (value instanceof Uint8Array || isReflectMessage(value)) return value;
  if (value instanceof Date) return reflect(TimestampSchema, timestampFromDate(value));
  return jsonMap(value);
}

function jsonMap(value: object): CelMap {
  return new JsonMap(value as Record<string, unknown>) as unknown as CelMap;
}

function jsonList(value: readonly unknown[]): CelList {
  return new JsonList(value) as unknown as CelList;
}

/** Thrown for ambiguous values. It fails the whole evaluation, even inside `||` or `default()`. */
export class UnreadableValue extends Error {}

/** Converts exceptions other than UnreadableValue to evaluation errors, so that `default()` can handle them. */
function readProperty(owner: Record<string, unknown>, key: string): CelValue | CelError | undefined {
  try {
    if (!Object.hasOwn(owner, key)) return undefined;
    const value = owner[key];
    return value === undefined || typeof value === "function" ? undefined : toCel(value);
  } catch (error) {
    if (error instanceof UnreadableValue) throw error;
    return celError(error instanceof Error ? error.message : "the value cannot be read");
  }
}

class JsonMap {
  readonly #owner: Record<string, unknown>;

  constructor(owner: Record<string, unknown>) {
    this.#owner = owner;
  }

  get [MAP_MARK](): true {
    return true;
  }

  get size(): number {
    return this.keys().length;
  }

  get(key: unknown): CelValue | CelError | undefined {
    return typeof key === "string" ? readProperty(this.#owner, key) : undefined;
  }

  has(key: unknown): boolean | CelError {
    const value = this.get(key);
    return isCelError(value) ? value : value !== undefined;
  }

  keys(): string[] {
    return Object.keys(this.#owner).filter((key) => readProperty(this.#owner, key) !== undefined);
  }

  *entries(): IterableIterator<[string, CelValue]> {
    for (const key of Object.keys(this.#owner)) {
      const value = readProperty(this.#owner, key);
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

  constructor(items: readonly unknown[]) {
    this.#items = items;
  }

  get [LIST_MARK](): true {
    return true;
  }

  get size(): number {
    return this.#items.length;
  }

  get(index: number): CelValue | undefined {
    return Number.isInteger(index) && index >= 0 && index < this.size ? toCel(this.#items[index] ?? null) : undefined;
  }

  *values(): IterableIterator<CelValue> {
    for (const item of this.#items) yield toCel(item ?? null);
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

/**
 * Throws if the value has no JSON form, is nested too deeply, or has too many values. A string counts as one additional
 * value per 64 characters.
 */
export function fromCel(value: CelValue, maxValues: number = MAX_OUTPUT_VALUES): CelOutput {
  let left = maxValues;

  function convert(current: CelValue, depth: number): CelOutput {
    left -= typeof current === "string" ? 1 + (current.length >>> 6) : 1;
    if (left < 0) throw new Error("the value is too large");
    if (depth > MAX_OUTPUT_DEPTH) throw new Error("the value is nested too deeply");
    switch (typeof current) {
      case "boolean":
      case "string":
        return current;
      case "bigint":
        return integer(current);
      case "number":
        // JSON cannot represent NaN or Infinity, so use the strings from the protobuf JSON mapping.
        return Number.isFinite(current) ? current : String(current);
      default:
        return current === null ? null : convertObject(current, depth);
    }
  }

  function convertObject(current: object, depth: number): CelOutput {
    if (isCelList(current)) return Array.from(current, (item) => convert(item, depth + 1));
    if (isCelMap(current)) {
      // fromEntries defines properties instead of setting them, so a key `__proto__` does not set the prototype.
      return Object.fromEntries(Array.from(current, ([key, item]) => [keyText(key), convert(item, depth + 1)]));
    }
    if (isCelUint(current)) return integer(current.value);
    if (current instanceof Uint8Array) return Buffer.from(current).toString("base64");
    if (isCelType(current)) return current.name;
    if (isReflectMessage(current)) return messageText(current.message);
    throw new Error("the value has no JSON form");
  }

  return convert(value, 0);
}

function integer(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value.toString();
}

function keyText(key: unknown): string {
  return isCelUint(key) ? key.value.toString() : String(key);
}

function messageText(message: unknown): string {
  if (isMessage(message, TimestampSchema)) return toJson(TimestampSchema, message);
  // The protobuf format has 0, 3, 6, or 9 decimals ("1.500s"), so trailing zeros are removed.
  if (isMessage(message, DurationSchema)) return toJson(DurationSchema, message).replace(/(\.\d*?)0+s$/, "$1s");
  throw new Error("the value has no JSON form");
}
