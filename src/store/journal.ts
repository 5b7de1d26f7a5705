/**
 * The text form of changes: one line each, a checksum and a JSON array. A line that a crash cut off, or that the disk
 * damaged, is recognised by its checksum and left out; every other line still counts, because each one says what a key
 * holds from then on and needs no other line.
 */
import { crc32 } from "node:zlib";
import type { Change } from "./table.ts";

const NEWLINE = 0x0a;
const CHECKSUM_CHARS = 8;

export function journalLine(change: Change): string {
  const text = JSON.stringify(change);
  return `${checksum(text)} ${text}\n`;
}

export interface Read {
  /** Lines that could not be read, apart from one at the end. */
  readonly damaged: number;
  /** The last line was cut off, as by a crash. */
  readonly isTorn: boolean;
}

export function readJournal(bytes: Buffer, load: (change: Change) => void): Read {
  let damaged = 0;
  let isTorn = false;
  for (let start = 0; start < bytes.length; ) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    const change = parseLine(bytes.toString("utf8", start, end));
    const isLast = end + 1 >= bytes.length;
    if (change) load(change);
    else if (end > start) {
      if (isLast) isTorn = true;
      else damaged += 1;
    }
    // A whole last line without its newline would join what is appended next.
    if (isLast && found < 0) isTorn = true;
    start = end + 1;
  }
  return { damaged, isTorn };
}

function parseLine(line: string): Change | undefined {
  const text = line.slice(CHECKSUM_CHARS + 1);
  if (line[CHECKSUM_CHARS] !== " " || line.slice(0, CHECKSUM_CHARS) !== checksum(text)) return undefined;
  try {
    const change: unknown = JSON.parse(text);
    return isChange(change) ? change : undefined;
  } catch {
    return undefined;
  }
}

function isChange(change: unknown): change is Change {
  if (!Array.isArray(change) || typeof change[0] !== "string") return false;
  return change.length === 1 || (change.length === 3 && typeof change[1] === "string" && Number.isFinite(change[2]));
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(CHECKSUM_CHARS, "0");
}
