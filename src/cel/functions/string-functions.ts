/**
 * Implements string functions that the library lacks, and replaces library functions that take quadratic time or too
 * much memory on a large body.
 */
import { type CelFunc, type CelList, CelScalar, celFunc, celMethod, listType } from "@bufbuild/cel";
import { peerInput } from "../../base/peer-inputs.ts";

const MAX_TEXT = peerInput("client/expression-text").maxBytes;

const { DOUBLE, DYN, INT, STRING } = CelScalar;
const LIST = listType(DYN);

export const stringFunctions: CelFunc[] = [
  celFunc("size", [STRING], INT, codePoints),
  celMethod("size", STRING, [], INT, function () {
    return codePoints(this);
  }),
  celMethod("lowerAscii", STRING, [], STRING, function () {
    return isAscii(this) ? this.toLowerCase() : inOtherCase(this, CAPITAL_A, CAPITAL_Z);
  }),
  celMethod("upperAscii", STRING, [], STRING, function () {
    return isAscii(this) ? this.toUpperCase() : inOtherCase(this, SMALL_A, SMALL_Z);
  }),
  celMethod("replace", STRING, [STRING, STRING], STRING, function (search, replacement) {
    return replaceText(this, search, replacement, Number.POSITIVE_INFINITY);
  }),
  celMethod("replace", STRING, [STRING, STRING, INT], STRING, function (search, replacement, times) {
    return replaceText(this, search, replacement, times < 0n ? Number.POSITIVE_INFINITY : Number(times));
  }),
  celMethod("join", LIST, [], STRING, function () {
    return joinTexts(this, "");
  }),
  celMethod("join", LIST, [STRING], STRING, function (separator) {
    return joinTexts(this, separator);
  }),
  celMethod("stripPrefix", STRING, [STRING], STRING, function (prefix) {
    return this.startsWith(prefix) ? this.slice(prefix.length) : this;
  }),
  celMethod("stripSuffix", STRING, [STRING], STRING, function (suffix) {
    return this.endsWith(suffix) ? this.slice(0, this.length - suffix.length) : this;
  }),
  // The library converts like JavaScript, which turns "" into 0 and "abc" into NaN.
  celFunc("double", [STRING], DOUBLE, (text) => {
    const trimmed = text.trim();
    const number = Number(trimmed);
    const isWord = /^(?:NaN|[+-]?Infinity)$/.test(trimmed);
    if (trimmed === "" || (Number.isNaN(number) && !isWord)) throw new Error("double: the text is not a number");
    return number;
  }),
];

const [CAPITAL_A, CAPITAL_Z, SMALL_A, SMALL_Z] = [0x41, 0x5a, 0x61, 0x7a];
const CASE_BIT = 0x20;

/** Changes only the letters in the range. A callback for each match of an expression takes many times as long. */
function inOtherCase(text: string, first: number, last: number): string {
  const bytes = Buffer.from(text, "utf16le");
  const units = new Uint16Array(bytes.buffer, bytes.byteOffset, text.length);
  for (let i = 0; i < units.length; i++) {
    const unit = units[i] as number;
    if (unit >= first && unit <= last) units[i] = unit ^ CASE_BIT;
  }
  return bytes.toString("utf16le");
}

function isAscii(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII includes control characters
  return /^[\x00-\x7f]*$/.test(text);
}

function checkLength(length: number): void {
  if (length > MAX_TEXT) throw new Error(`the text would be longer than ${MAX_TEXT} characters`);
}

const HIGH_SURROGATE = /[\ud800-\udbff]/;

function codePoints(text: string): bigint {
  if (!HIGH_SURROGATE.test(text)) return BigInt(text.length);
  let count = text.length;
  for (let index = 0; index < text.length - 1; index++) {
    const isPair = (text.charCodeAt(index) & 0xfc00) === 0xd800 && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00;
    if (isPair) count--;
  }
  return BigInt(count);
}

function replaceText(text: string, search: string, replacement: string, times: number): string {
  if (search !== "" && times === Number.POSITIVE_INFINITY) {
    const pieces = text.split(search);
    checkLength(text.length + (pieces.length - 1) * (replacement.length - search.length));
    return pieces.join(replacement);
  }
  const pieces: string[] = [];
  let length = 0;
  let copied = 0;
  // An empty search string matches before every character and at the end.
  let found = times > 0 ? text.indexOf(search) : -1;
  for (let count = 1; found >= 0; count++) {
    const piece = text.slice(copied, found) + replacement;
    length += piece.length;
    checkLength(length);
    pieces.push(piece);
    copied = found + search.length;
    const next = search === "" ? found + 1 : copied;
    found = count < times && next <= text.length ? text.indexOf(search, next) : -1;
  }
  return pieces.join("") + text.slice(copied);
}

function joinTexts(list: CelList, separator: string): string {
  const texts: string[] = [];
  let length = 0;
  for (const item of list) {
    if (typeof item !== "string") throw new Error("join: the list has an element that is not a string");
    length += item.length + separator.length;
    checkLength(length);
    texts.push(item);
  }
  return texts.join(separator);
}
