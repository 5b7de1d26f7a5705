/**
 * Replaces the built-in functions whose work grows with their input by functions that also count the bytes, characters, or
 * elements that they touch. Not counted: object spread, string comparison, and the joining of strings.
 */
import { createHash, createHmac } from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import zlib from "node:zlib";

type Cost = (self: unknown, args: readonly unknown[], result: unknown) => number;

let touched = 0;

/** Returns what was touched since the last call. */
export function takeTouched(): number {
  const taken = touched;
  touched = 0;
  return taken;
}

/** An array, a string, a buffer, or a view of one. */
function size(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 0;
  const { length, byteLength } = value as { length?: unknown; byteLength?: unknown };
  return typeof length === "number" ? length : typeof byteLength === "number" ? byteLength : 0;
}

const { keys } = Object;
const { indexOf: indexInText } = String.prototype;
const { log2, max } = Math;
const apply = Reflect.apply;

const ofSelf: Cost = (self) => size(self);
const ofResult: Cost = (_, __, result) => size(result);
const ofFirst: Cost = (_, args) => size(args[0]);
const ofBoth: Cost = (self, args, result) => size(self) + size(args[0]) + size(result);
const ofMembers: Cost = (_, args) =>
  typeof args[0] === "object" && args[0] !== null
    ? ArrayBuffer.isView(args[0])
      ? size(args[0])
      : keys(args[0]).length
    : 0;
const ofResultMembers: Cost = (_, __, result) =>
  typeof result === "object" && result !== null ? keys(result).length : 0;
/** A search touches what is before the match. */
const toMatch: Cost = (self, args, result) => {
  const from = typeof args[1] === "number" ? max(0, args[1]) : 0;
  return (typeof result === "number" && result >= 0 ? result + size(args[0]) : size(self)) - from;
};
const toLastMatch: Cost = (self, _, result) => size(self) - max(0, Number(result));
const isElement: Cost = (self, args, result) => {
  if (result !== true) return size(self);
  const list = self as ArrayLike<unknown>;
  let at = 0;
  while (at < list.length && !Object.is(list[at], args[0])) at += 1;
  return at;
};
const isPart: Cost = (self, args, result) =>
  result === true ? apply(indexInText, self, args) + size(args[0]) : size(self);
const hasByte: Cost = (self, args) => size(self) - (typeof args[1] === "number" ? args[1] : 0);
const moved: Cost = (self, args, result) => {
  const length = size(self);
  const start = Number(args[0] ?? 0);
  return size(result) + max(0, length - (start < 0 ? length + start : start));
};
/** From `args[first]` to `args[first + 1]`. */
const range =
  (first: number): Cost =>
  (self, args) =>
    Number(args[first + 1] ?? size(self)) - Number(args[first] ?? 0);
const sorted: Cost = (self) => size(self) * (1 + log2(size(self) + 1));

const STRINGS: Readonly<Record<string, Cost>> = {
  indexOf: toMatch,
  lastIndexOf: toLastMatch,
  includes: isPart,
  startsWith: ofFirst,
  endsWith: ofFirst,
  split: ofSelf,
  replace: ofBoth,
  replaceAll: ofBoth,
  match: ofResult,
  normalize: ofSelf,
  toLowerCase: ofSelf,
  toUpperCase: ofSelf,
  toLocaleLowerCase: ofSelf,
  toLocaleUpperCase: ofSelf,
  trim: (self, _, result) => size(self) - size(result),
  trimStart: (self, _, result) => size(self) - size(result),
  trimEnd: (self, _, result) => size(self) - size(result),
  padStart: ofResult,
  padEnd: ofResult,
  repeat: ofResult,
  localeCompare: ofSelf,
  isWellFormed: ofSelf,
  toWellFormed: ofSelf,
};
const ARRAYS: Readonly<Record<string, Cost>> = {
  indexOf: toMatch,
  lastIndexOf: toLastMatch,
  includes: isElement,
  findIndex: toMatch,
  findLastIndex: toLastMatch,
  shift: ofSelf,
  unshift: ofSelf,
  splice: moved,
  slice: ofResult,
  concat: ofResult,
  join: ofBoth,
  sort: sorted,
  toSorted: sorted,
  reverse: ofSelf,
  toReversed: ofSelf,
  toSpliced: ofSelf,
  with: ofSelf,
  fill: range(1),
  copyWithin: range(1),
  flat: ofResult,
  flatMap: ofResult,
  map: ofSelf,
  filter: ofSelf,
  push: (_, args) => args.length,
};
const BYTES: Readonly<Record<string, Cost>> = {
  indexOf: toMatch,
  lastIndexOf: toLastMatch,
  includes: hasByte,
  set: ofFirst,
  slice: ofResult,
  fill: range(1),
  copyWithin: range(1),
  join: ofBoth,
  reverse: ofSelf,
  sort: sorted,
};
const BUFFERS: Readonly<Record<string, Cost>> = {
  indexOf: toMatch,
  lastIndexOf: toLastMatch,
  includes: hasByte,
  toString: ofResult,
  equals: ofFirst,
  compare: ofFirst,
  copy: (_, __, result) => Number(result),
  write: (_, __, result) => Number(result),
  fill: range(1),
  utf8Slice: ofResult,
  latin1Slice: ofResult,
  asciiSlice: ofResult,
  hexSlice: ofResult,
  base64Slice: ofResult,
  base64urlSlice: ofResult,
  utf8Write: (_, __, result) => Number(result),
  latin1Write: (_, __, result) => Number(result),
  swap16: ofSelf,
};
const OBJECTS: Readonly<Record<string, Cost>> = {
  keys: ofResult,
  values: ofResult,
  entries: ofResult,
  getOwnPropertyNames: ofResult,
  fromEntries: ofResultMembers,
  freeze: ofMembers,
  assign: (_, args) => {
    let count = 0;
    for (let i = 1; i < args.length; i++) count += ofMembers(undefined, [args[i]], undefined);
    return count;
  },
};
const FORM_PARAMETERS: Readonly<Record<string, Cost>> = Object.fromEntries(
  ["get", "getAll", "has", "delete", "set", "toString", "sort"].map((name) => [
    name,
    (self: unknown) => (self as URLSearchParams).size,
  ]),
);
/** Regular expressions: everything from the start of the search to the end of the match. */
const searched: Cost = (self, args, result) => {
  const { global, sticky, multiline, source, lastIndex } = self as RegExp;
  const match = result as RegExpExecArray | null;
  if (match !== null) return match.index + match[0].length - (global || sticky ? lastIndex - match[0].length : 0);
  return sticky || (source.startsWith("^") && !multiline) ? 1 : size(String(args[0]));
};

/** Call this once, before the code that is counted is loaded: modules may keep the functions. */
export function countBuiltins(): void {
  replace(String.prototype, STRINGS);
  replace(Array.prototype, ARRAYS);
  replace(Object.getPrototypeOf(Uint8Array.prototype) as object, BYTES);
  replace(Buffer.prototype, BUFFERS);
  replace(Object, OBJECTS);
  replace(URLSearchParams.prototype, FORM_PARAMETERS);
  replace(RegExp.prototype, { exec: searched });
  replace(JSON, { parse: ofFirst, stringify: ofResult });
  replace(Buffer, {
    concat: ofResult,
    from: (_, args, result) => (args[0] instanceof ArrayBuffer ? 0 : size(result)),
    alloc: ofResult,
    compare: ofFirst,
    byteLength: ofFirst,
  });
  replace(TextDecoder.prototype, { decode: ofFirst });
  replace(TextEncoder.prototype, { encode: ofFirst, encodeInto: ofFirst });
  replace(globalThis, {
    encodeURIComponent: ofFirst,
    decodeURIComponent: ofFirst,
    encodeURI: ofFirst,
    decodeURI: ofFirst,
    atob: ofFirst,
    btoa: ofFirst,
  });
  for (const hash of [createHash("sha256"), createHmac("sha256", "")])
    replace(Object.getPrototypeOf(hash) as object, { update: ofFirst });
  const unpacked: Cost = (_, args, result) => size(args[0]) + size(result);
  replace(zlib, {
    gunzipSync: unpacked,
    gzipSync: unpacked,
    inflateSync: unpacked,
    inflateRawSync: unpacked,
    deflateRawSync: unpacked,
    brotliDecompressSync: unpacked,
    unzipSync: unpacked,
  });
  syncBuiltinESMExports();
  for (const empty of [[][Symbol.iterator](), new Map().entries(), new Set().values(), ""[Symbol.iterator]()])
    replace(Object.getPrototypeOf(empty) as object, { next: () => 1 });
}

function replace(owner: object, costs: Readonly<Record<string, Cost>>): void {
  for (const name of keys(costs)) {
    const property = Object.getOwnPropertyDescriptor(owner, name);
    if (property?.value === undefined) continue;
    const original = property.value as (...args: unknown[]) => unknown;
    const cost = costs[name] as Cost;
    const counted = {
      [name](this: unknown, ...args: unknown[]): unknown {
        let result: unknown;
        try {
          result = apply(original, this, args);
        } finally {
          touched += cost(this, args, result);
        }
        return result;
      },
    }[name];
    Object.defineProperty(owner, name, { ...property, value: counted });
  }
}
