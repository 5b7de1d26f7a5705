/**
 * Implements a list of header lines with lowercase names, in order and with repeats, as a flat array of names and
 * values.
 */
import { isHeaderName } from "../base/header-names.ts";
import { HOP_BY_HOP_HEADERS, includesHeader, isSameHeader, OVERRIDE_HEADERS } from "./header-rules.ts";

const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const LINES = /^[\t\x20-\x7e\x80-\xff]*(?:\r\n[\t\x20-\x7e\x80-\xff]*)*$/;

export class HeaderList {
  /** Alternates lowercase names and values. Only the methods change the array. */
  readonly pairs: readonly string[];
  readonly #pairs: string[];
  #isSafe: boolean;

  /** `isSafe` states that the caller validated all names and values. The list takes ownership of the array. */
  constructor(pairs: string[] = [], isSafe: boolean = pairs.length === 0) {
    this.pairs = pairs;
    this.#pairs = pairs;
    this.#isSafe = isSafe;
  }

  /**
   * True if every name and value has passed `isHeaderName` and `isHeaderValue`, so that writers need not check them
   * again.
   */
  get isSafe(): boolean {
    return this.#isSafe;
  }

  static fromRaw(raw: readonly string[]): HeaderList {
    const pairs = new Array<string>(raw.length);
    for (let i = 0; i < raw.length; i += 2) {
      pairs[i] = (raw[i] as string).toLowerCase();
      pairs[i + 1] = raw[i + 1] as string;
    }
    return new HeaderList(pairs);
  }

  /** If a header occurs in several spellings, the last one wins. */
  static of(entries: Readonly<Record<string, string>>): HeaderList {
    const list = new HeaderList();
    for (const name of Object.keys(entries)) list.set(name.toLowerCase(), entries[name] as string);
    return list;
  }

  /** Returns the value, with repeats joined by ", " (RFC 9110 section 5.3). `name` must be lowercase. */
  get(name: string): string | undefined {
    const pairs = this.pairs;
    let found: string | undefined;
    for (let i = 0; i < pairs.length; i += 2) {
      if (pairs[i] === name) found = found === undefined ? (pairs[i + 1] as string) : `${found}, ${pairs[i + 1]}`;
    }
    return found;
  }

  getAll(name: string): string[] {
    const values: string[] = [];
    for (let i = 0; i < this.pairs.length; i += 2) {
      if (this.pairs[i] === name) values.push(this.pairs[i + 1] as string);
    }
    return values;
  }

  has(name: string): boolean {
    for (let i = 0; i < this.pairs.length; i += 2) if (this.pairs[i] === name) return true;
    return false;
  }

  hasAnySpelling(name: string): boolean {
    for (let i = 0; i < this.pairs.length; i += 2) if (isSameHeader(this.pairs[i] as string, name)) return true;
    return false;
  }

  get chars(): number {
    let chars = 0;
    for (const text of this.pairs) chars += text.length;
    return chars;
  }

  /** Yields each name once, in order of first appearance. */
  names(): Iterable<string> {
    const names = new Set<string>();
    for (let i = 0; i < this.pairs.length; i += 2) names.add(this.pairs[i] as string);
    return names;
  }

  add(name: string, value: string): void {
    if (this.#isSafe && !(isHeaderName(name) && isHeaderValue(value))) this.#isSafe = false;
    this.#pairs.push(name, value);
  }

  /** Adds the line at this index of the pairs of another list, which need not be checked again if that list is safe. */
  addFrom(list: HeaderList, at: number): void {
    const name = list.pairs[at] as string;
    const value = list.pairs[at + 1] as string;
    if (list.isSafe) this.#pairs.push(name, value);
    else this.add(name, value);
  }

  /**
   * Replaces all lines that a server may treat as this header (`isSameHeader`) with a single line, so that no other
   * spelling can override the value.
   */
  set(name: string, value: string): void {
    const pairs = this.#pairs;
    for (let i = 0; i < pairs.length; i += 2) {
      if (!isSameHeader(pairs[i] as string, name)) continue;
      if (this.#isSafe && !(isHeaderName(name) && isHeaderValue(value))) this.#isSafe = false;
      pairs[i] = name;
      pairs[i + 1] = value;
      this.#removeFrom(name, i + 2);
      return;
    }
    this.add(name, value);
  }

  assert(name: string, value: string | undefined): void {
    if (value === undefined) this.delete(name);
    else this.set(name, value);
  }

  /**
   * Adds a line with exactly this name and removes other spellings. Without a value, it only removes other spellings.
   */
  append(name: string, value: string | undefined): void {
    this.#removeFrom(name, 0, name);
    if (value !== undefined) this.add(name, value);
  }

  delete(name: string): void {
    this.#removeFrom(name, 0);
  }

  /** Returns whether the header has several lines or another spelling, so that servers could disagree on its value. */
  isAmbiguous(name: string): boolean {
    const pairs = this.pairs;
    let isSeen = false;
    for (let i = 0; i < pairs.length; i += 2) {
      if (!isSameHeader(pairs[i] as string, name)) continue;
      if (isSeen || pairs[i] !== name) return true;
      isSeen = true;
    }
    return false;
  }

  clone(): HeaderList {
    return new HeaderList(this.#pairs.slice(), this.#isSafe);
  }

  /** Removes hop-by-hop headers, and the headers that `connection` lists unless they are in `keep`. */
  removeHopByHop(keep?: ReadonlySet<string>): void {
    const listed = this.get("connection");
    const pairs = this.#pairs;
    let names: Set<string> | undefined;
    if (listed !== undefined && listed !== "keep-alive" && listed !== "close") {
      names = new Set(listed.split(",").map((name) => name.trim().toLowerCase()));
    }
    let write = 0;
    for (let read = 0; read < pairs.length; read += 2) {
      const name = pairs[read] as string;
      if (HOP_BY_HOP_HEADERS.has(name) || (names?.has(name) === true && keep?.has(name) !== true)) continue;
      pairs[write] = name;
      pairs[write + 1] = pairs[read + 1] as string;
      write += 2;
    }
    cutTo(pairs, write);
  }

  /** Returns the override headers (`OVERRIDE_HEADERS`) in spellings that are not in `kept`, or undefined. */
  overrides(kept: ReadonlySet<string>): readonly string[] | undefined {
    const pairs = this.pairs;
    let found: string[] | undefined;
    for (let i = 0; i < pairs.length; i += 2) {
      if (!isOverride(pairs[i] as string, kept)) continue;
      found ??= [];
      found.push(pairs[i] as string);
    }
    return found;
  }

  removeOverrides(kept: ReadonlySet<string>): void {
    const pairs = this.#pairs;
    let write = 0;
    for (let read = 0; read < pairs.length; read += 2) {
      if (isOverride(pairs[read] as string, kept)) continue;
      pairs[write] = pairs[read] as string;
      pairs[write + 1] = pairs[read + 1] as string;
      write += 2;
    }
    cutTo(pairs, write);
  }

  *entries(): Iterable<[name: string, value: string]> {
    for (const name of this.names()) yield [name, this.get(name) ?? ""];
  }

  toObject(): Record<string, string | string[]> {
    const object: Record<string, string | string[]> = Object.create(null);
    for (let i = 0; i < this.pairs.length; i += 2) {
      const name = this.pairs[i] as string;
      const value = this.pairs[i + 1] as string;
      const before = object[name];
      if (before === undefined) object[name] = value;
      else if (Array.isArray(before)) before.push(value);
      else object[name] = [before, value];
    }
    return object;
  }

  #removeFrom(name: string, start: number, kept?: string): void {
    const pairs = this.#pairs;
    let write = start;
    while (write < pairs.length && (pairs[write] === kept || !isSameHeader(pairs[write] as string, name))) write += 2;
    for (let read = write; read < pairs.length; read += 2) {
      if (pairs[read] !== kept && isSameHeader(pairs[read] as string, name)) continue;
      pairs[write] = pairs[read] as string;
      pairs[write + 1] = pairs[read + 1] as string;
      write += 2;
    }
    cutTo(pairs, write);
  }
}

const SMALL_X = 0x78;

/** The first letter decides for most names, because no other character folds to it. */
function isOverride(name: string, kept: ReadonlySet<string>): boolean {
  return name.charCodeAt(0) === SMALL_X && includesHeader(OVERRIDE_HEADERS, name) && !kept.has(name);
}

/** Popping is faster than setting `length` in V8. */
function cutTo(list: string[], length: number): void {
  while (list.length > length) list.pop();
}

export function isHeaderValue(value: string): boolean {
  return VALUE.test(value);
}

/** Returns whether `isHeaderValue` is true for every part of each line. One test is faster than a test of each value. */
export function areHeaderLines(text: string): boolean {
  return LINES.test(text);
}

export function addForwarded(headers: HeaderList, address: string, scheme: string, host: string): void {
  const before = headers.get("x-forwarded-for");
  headers.set("x-forwarded-for", before === undefined ? address : `${before}, ${address}`);
  if (!headers.has("x-forwarded-proto")) headers.add("x-forwarded-proto", scheme);
  if (!headers.has("x-forwarded-host")) headers.add("x-forwarded-host", host);
}

/** Only WebSocket is forwarded, because other upgrades such as h2c would bypass the gateway's policies. */
export function asksForWebSocket(method: string, headers: HeaderList): boolean {
  return method === "GET" && headers.get("upgrade")?.toLowerCase() === "websocket";
}
