/**
 * A list of header lines: lower-case names, order and repeats kept, as one flat array of name, value, name, value.
 * That is the form in which Node receives and sends them, so a request passes without being rebuilt, and a
 * linear scan over a few dozen lines is cheaper than any map.
 */
import { isHeaderName } from "../base/header-names.ts";
import { HOP_BY_HOP_HEADERS, isSameHeader } from "./header-rules.ts";

/** Visible characters, spaces, tabs and bytes above 127. A search for what is forbidden would take twice as long. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

export class HeaderList {
  /** name, value, name, value, …; the names are lower case. Changed by the methods alone: they look at what comes in. */
  readonly pairs: readonly string[];
  /** The same list. */
  readonly #pairs: string[];
  #isSafe: boolean;

  /** `isSafe`: names and values are known to be valid. The list becomes this one's own. */
  constructor(pairs: string[] = [], isSafe: boolean = pairs.length === 0) {
    this.pairs = pairs;
    this.#pairs = pairs;
    this.#isSafe = isSafe;
  }

  /** Every name and value passed `isHeaderName` and `isHeaderValue`: no line can end early, and need not be looked at again. */
  get isSafe(): boolean {
    return this.#isSafe;
  }

  /** From the raw header array of Node: the names are lowered, the array is copied. */
  static fromRaw(raw: readonly string[]): HeaderList {
    const pairs = new Array<string>(raw.length);
    for (let i = 0; i < raw.length; i += 2) {
      pairs[i] = (raw[i] as string).toLowerCase();
      pairs[i + 1] = raw[i + 1] as string;
    }
    return new HeaderList(pairs);
  }

  /** Of names that are spellings of one header the last counts. */
  static of(entries: Readonly<Record<string, string>>): HeaderList {
    const list = new HeaderList();
    for (const name of Object.keys(entries)) list.set(name.toLowerCase(), entries[name] as string);
    return list;
  }

  /** The value; repeats are joined by ", " (RFC 9110 section 5.3). `name` must be lower case. */
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

  /** Whether there is a line that a server may take for this header. */
  hasAnySpelling(name: string): boolean {
    for (let i = 0; i < this.pairs.length; i += 2) if (isSameHeader(this.pairs[i] as string, name)) return true;
    return false;
  }

  /** The length of all names and values. */
  get chars(): number {
    let chars = 0;
    for (const text of this.pairs) chars += text.length;
    return chars;
  }

  /** Each name once, in order of first appearance. */
  names(): Iterable<string> {
    const names = new Set<string>();
    for (let i = 0; i < this.pairs.length; i += 2) names.add(this.pairs[i] as string);
    return names;
  }

  add(name: string, value: string): void {
    if (this.#isSafe && !(isHeaderName(name) && isHeaderValue(value))) this.#isSafe = false;
    this.#pairs.push(name, value);
  }

  /**
   * Replaces every line that a server may take for this header (`isSameHeader`) by one, at the place of the first:
   * so nothing that was sent under another spelling can stand in for the value.
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

  /** Sets the header, or removes it if there is no value. */
  assert(name: string, value: string | undefined): void {
    if (value === undefined) this.delete(name);
    else this.set(name, value);
  }

  /** Adds a line to those of exactly this name, and removes other spellings of it. Without a value only the latter. */
  append(name: string, value: string | undefined): void {
    this.#removeFrom(name, 0, name);
    if (value !== undefined) this.add(name, value);
  }

  /** Removes every line that a server may take for this header. */
  delete(name: string): void {
    this.#removeFrom(name, 0);
  }

  /** Whether a server could read the header in more than one way: it has several lines, or one in another spelling. */
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

  /** Removes what belongs to one connection, also the names that `connection` lists, except those in `keep`. */
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

  /** Each name once, with the value that `get` returns. */
  *entries(): Iterable<[name: string, value: string]> {
    for (const name of this.names()) yield [name, this.get(name) ?? ""];
  }

  /** As an object for snapshots and dumps: a repeated name becomes a list. */
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

  /** Removes the lines of every spelling but `kept`. */
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

/** A list forgets its end faster than it takes a length, which V8 sets in a call of its own; mostly nothing goes. */
function cutTo(list: string[], length: number): void {
  while (list.length > length) list.pop();
}

/** Visible characters, spaces and tabs, and bytes above 127: what Node will send. Line breaks and NUL are refused. */
export function isHeaderValue(value: string): boolean {
  return VALUE.test(value);
}

/** What a client said was dropped at the edge unless its peer is trusted; what is left is extended. */
export function addForwarded(headers: HeaderList, address: string, scheme: string, host: string): void {
  const before = headers.get("x-forwarded-for");
  headers.set("x-forwarded-for", before === undefined ? address : `${before}, ${address}`);
  if (!headers.has("x-forwarded-proto")) headers.add("x-forwarded-proto", scheme);
  if (!headers.has("x-forwarded-host")) headers.add("x-forwarded-host", host);
}
