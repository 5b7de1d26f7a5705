/**
 * Presents HTTP headers as a CEL map with case-insensitive names, such as `request.headers["X-Id"]`. Repeated headers
 * are joined with `, `.
 */
import { MAP_MARK } from "./values.ts";

export interface HeaderSource {
  /** `name` must be in lower case. */
  get(name: string): string | undefined;
  /** Returns each name once, in lower case. */
  names(): Iterable<string>;
}

/** The type is opaque outside this folder. Attributes can contain a view in place of a JSON value. */
export type HeaderView = object;

export function celHeaders(headers: HeaderSource | Iterable<readonly [string, string]>): HeaderView {
  return new HeaderMap(isHeaderSource(headers) ? headers : fromEntries(headers));
}

function isHeaderSource(headers: object): headers is HeaderSource {
  return "names" in headers && "get" in headers;
}

function fromEntries(entries: Iterable<readonly [string, string]>): HeaderSource {
  const map = new Map<string, string>();
  for (const [name, value] of entries) {
    const key = name.toLowerCase();
    const earlier = map.get(key);
    map.set(key, earlier === undefined ? value : `${earlier}, ${value}`);
  }
  return { get: (name) => map.get(name), names: () => map.keys() };
}

class HeaderMap {
  readonly #source: HeaderSource;

  constructor(source: HeaderSource) {
    this.#source = source;
  }

  get [MAP_MARK](): true {
    return true;
  }

  get size(): number {
    return this.keys().length;
  }

  get(key: unknown): string | undefined {
    return typeof key === "string" ? this.#source.get(key.toLowerCase()) : undefined;
  }

  has(key: unknown): boolean {
    return this.get(key) !== undefined;
  }

  keys(): string[] {
    return [...this.#source.names()];
  }

  *entries(): IterableIterator<[string, string]> {
    for (const name of this.#source.names()) yield [name, this.#source.get(name) ?? ""];
  }

  *values(): IterableIterator<string> {
    for (const [, value] of this.entries()) yield value;
  }

  forEach(callback: (value: string, name: string, map: unknown) => void): void {
    for (const [name, value] of this.entries()) callback(value, name, this);
  }

  [Symbol.iterator](): IterableIterator<[string, string]> {
    return this.entries();
  }
}
