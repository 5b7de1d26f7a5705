/**
 * The files of a folder store. `snapshot.<n>` holds every entry as it was when `journal.<n>` began, the journal holds
 * each change since. To compact, a new journal begins, then a snapshot is written and renamed into place; only then the
 * older files go. So each crash leaves a snapshot and all journals since it. Appended text is with the system at once
 * and on the disk within a second.
 */

import { readdirSync, readFileSync } from "node:fs";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { journalLine, type Read, readJournal } from "./journal.ts";
import type { Change } from "./table.ts";

/** Lines of a snapshot that are written at once. */
const SLICE_LINES = 1_000;

export interface Recovered extends Read {
  /** The newest journal, which goes on. */
  readonly number: number;
}

/** Reads what an earlier process left. */
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
    return new JournalFile(file, (await file.stat()).size, isRagged);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** If it fails the text may stand there in part: the next one begins on a new line, and this one is to be repeated. */
  async append(text: string): Promise<void> {
    const bytes = Buffer.from(this.#isRagged ? `\n${text}` : text);
    this.#isRagged = true;
    for (let from = 0; from < bytes.length; ) {
      const { bytesWritten } = await this.#file.write(bytes, from, bytes.length - from);
      from += bytesWritten;
    }
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

/** Writes a snapshot and removes what it replaces. Returns its size. */
export async function writeSnapshot(folder: string, number: number, changes: Iterable<Change>): Promise<number> {
  const temporary = join(folder, "snapshot.new");
  const file = await open(temporary, "w", 0o600);
  let bytes = 0;
  try {
    let lines: string[] = [];
    const write = async (): Promise<void> => {
      const { bytesWritten } = await file.write(lines.join(""));
      bytes += bytesWritten;
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
