/**
 * Encodes each change as one line with a checksum and a JSON array, and manages the journal and snapshot files. A line
 * that was truncated by a crash or damaged on disk fails its checksum and is skipped. The other lines remain valid,
 * because each line sets one key independently.
 */

import { readdirSync, readFileSync } from "node:fs";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { peerInput } from "../base/peer-inputs.ts";
import { readJson } from "../json/read-json.ts";
import type { Change } from "./store.ts";

const JOURNAL = peerInput("file/store-journal");
const CHANGE = peerInput("file/store-change");

const NEWLINE = 0x0a;
const CHECKSUM_CHARS = 8;

export function journalLine(change: Change): string {
  const text = JSON.stringify(change);
  return `${checksum(text)} ${text}\n`;
}

export interface Read {
  /** Counts the damaged lines, except a damaged last line. */
  readonly damaged: number;
  readonly isTorn: boolean;
}

export function readJournal(bytes: Buffer, load: (change: Change) => void): Read {
  let damaged = 0;
  let isTorn = false;
  for (let start = 0; start < bytes.length; ) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    const change = end - start > JOURNAL.maxBytes ? undefined : parseLine(bytes.toString("utf8", start, end));
    const isLast = end + 1 >= bytes.length;
    if (change) load(change);
    else if (end > start) {
      if (isLast) isTorn = true;
      else damaged += 1;
    }
    // A complete last line without its newline would be joined with the next append.
    if (isLast && found < 0) isTorn = true;
    start = end + 1;
  }
  return { damaged, isTorn };
}

function parseLine(line: string): Change | undefined {
  const text = line.slice(CHECKSUM_CHARS + 1);
  if (line[CHECKSUM_CHARS] !== " " || line.slice(0, CHECKSUM_CHARS) !== checksum(text)) return undefined;
  try {
    const change: unknown = readJson(CHANGE, text);
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

const SLICE_LINES = 1_000;

export interface Recovered extends Read {
  /** New changes are appended to this journal, which is the newest. */
  readonly number: number;
}

export function recover(folder: string, load: (change: Change) => void): Recovered {
  const names = readdirSync(folder);
  const numbers = (kind: string): number[] =>
    names
      .flatMap((name) =>
        name.startsWith(kind) && /^\d+$/.test(name.slice(kind.length)) ? [Number(name.slice(kind.length))] : [],
      )
      .sort((a, b) => a - b);
  const first = numbers("snapshot.").at(-1) ?? 0;
  const journals = numbers("journal.").filter((number) => number >= first);
  let damaged = 0;
  let isTorn = false;
  const files = [...(first > 0 ? [`snapshot.${first}`] : []), ...journals.map((number) => `journal.${number}`)];
  for (const name of files) {
    const result = readJournal(readFileSync(join(folder, name)), load);
    damaged += result.damaged;
    isTorn = result.isTorn;
  }
  return { number: journals.at(-1) ?? first, damaged, isTorn };
}

export class JournalFile {
  readonly #file: FileHandle;
  #bytes: number;
  #isRagged: boolean;

  private constructor(file: FileHandle, bytes: number, isRagged: boolean) {
    this.#file = file;
    this.#bytes = bytes;
    this.#isRagged = isRagged;
  }

  static async open(folder: string, number: number, isRagged: boolean): Promise<JournalFile> {
    const file = await open(join(folder, `journal.${number}`), "a", 0o600);
    try {
      return new JournalFile(file, (await file.stat()).size, isRagged);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get bytes(): number {
    return this.#bytes;
  }

  /**
   * After a failure the text may be partially written. The next append starts on a new line, and the caller must
   * repeat the text.
   */
  async append(text: string): Promise<void> {
    const bytes = Buffer.from(this.#isRagged ? `\n${text}` : text);
    this.#isRagged = true;
    await writeFully(this.#file, bytes);
    this.#isRagged = false;
    this.#bytes += bytes.length;
  }

  sync(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Writes a snapshot, removes older snapshots and journals, and resolves with the size of the snapshot in bytes. */
export async function writeSnapshot(folder: string, number: number, changes: Iterable<Change>): Promise<number> {
  const temporary = join(folder, "snapshot.new");
  const file = await open(temporary, "w", 0o600);
  let bytes = 0;
  try {
    let lines: string[] = [];
    const write = async (): Promise<void> => {
      const slice = Buffer.from(lines.join(""));
      await writeFully(file, slice);
      bytes += slice.length;
      lines = [];
    };
    for (const change of changes) {
      if (lines.push(journalLine(change)) === SLICE_LINES) await write();
    }
    await write();
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, join(folder, `snapshot.${number}`));
  await syncFolder(folder);
  await removeBefore(folder, number);
  return bytes;
}

/** A disk that becomes full takes the first part of a write and rejects the rest. */
async function writeFully(file: FileHandle, bytes: Buffer): Promise<void> {
  for (let from = 0; from < bytes.length; ) from += (await file.write(bytes, from, bytes.length - from)).bytesWritten;
}

export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function removeBefore(folder: string, number: number): Promise<void> {
  for (const name of readdirSync(folder)) {
    const found = /^(?:snapshot|journal)\.(\d+)$/.exec(name);
    if (found && Number(found[1]) < number) await rm(join(folder, name), { force: true });
  }
}
