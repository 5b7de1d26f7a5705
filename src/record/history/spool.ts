/**
 * Keeps batches of rows in files while the database is unavailable. Each process appends to files in its own folder, which a lock
 * protects. A later process takes over the folders of processes that have exited. A file is deleted after its batches are
 * stored, so a batch can be read more than once. If the spool is full, the oldest file is deleted.
 */
import { randomUUID } from "node:crypto";
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { type FolderLock, removeOwnLock, takeFolderLock } from "../../store/folder-lock.ts";

const FILE_BYTES = 4 * 1024 * 1024;
const EXTENSION = ".rows";
const SEPARATOR = "\n\n";

interface SpoolOptions {
  readonly folder: string;
  readonly maxBytes: number;
  readonly clock: Clock;
  /** True if another thread of this process has died and may have left rows. */
  readonly isReplacement: boolean;
  /** Reports rows that were deleted because the spool is full. */
  dropped(rows: number): void;
}

interface SpoolFile {
  readonly path: string;
  bytes: number;
}

export class Spool {
  readonly #options: SpoolOptions;
  readonly #own: string;
  #ownLock: FolderLock | undefined = undefined;
  readonly #adopted = new Map<string, FolderLock>();
  /** The oldest file comes first. */
  #files: SpoolFile[] = [];
  #current: { readonly fd: number; readonly file: SpoolFile } | undefined = undefined;
  #count = 0;

  constructor(options: SpoolOptions) {
    this.#options = options;
    this.#own = join(options.folder, randomUUID());
    if (options.isReplacement) for (const name of listFolder(options.folder)) removeOwnLock(join(options.folder, name));
  }

  get bytes(): number {
    return this.#files.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  get isEmpty(): boolean {
    return this.#files.length === 0;
  }

  /** Takes over the files of processes that have exited. */
  adopt(): void {
    const { folder, clock } = this.#options;
    for (const name of listFolder(folder)) {
      const path = join(folder, name);
      if (path === this.#own || this.#adopted.has(path)) continue;
      try {
        this.#adopted.set(path, takeFolderLock(path, clock));
      } catch {
        // The process is running, or another process has just taken over the folder.
        continue;
      }
      const names = listFolder(path).filter((file) => file.endsWith(EXTENSION));
      const found = names.sort().map((file) => join(path, file));
      this.#files.unshift(...found.map((file) => ({ path: file, bytes: statSync(file).size })));
      if (found.length === 0) this.#leave(path);
    }
  }

  /** Throws if the file cannot be written. `batch` consists of one line per row. */
  append(batch: string): void {
    // The empty line also separates the batch from an earlier one that was cut off.
    const bytes = Buffer.from(`${SEPARATOR}${batch}`);
    const { fd, file } = this.#openFile();
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(fd, bytes, written);
    } finally {
      file.bytes += written;
    }
    if (file.bytes >= FILE_BYTES) this.#closeFile();
    this.#trim();
  }

  /** Returns the batches of the oldest file. The caller must remove the file after storing them. */
  oldest(): { readonly batches: readonly string[]; remove(): void } | undefined {
    const [file] = this.#files;
    if (file === undefined) return undefined;
    if (this.#current?.file === file) this.#closeFile();
    const batches = readFileSync(file.path, "utf8")
      .split(SEPARATOR)
      .filter((batch) => batch !== "");
    return { batches, remove: () => this.#remove(file) };
  }

  close(): void {
    this.#closeFile();
    for (const lock of this.#adopted.values()) lock.release();
    this.#ownLock?.release();
    if (!this.#files.some(({ path }) => path.startsWith(this.#own)))
      rmSync(this.#own, { recursive: true, force: true });
  }

  #openFile(): { readonly fd: number; readonly file: SpoolFile } {
    if (this.#current !== undefined) return this.#current;
    mkdirSync(this.#own, { recursive: true, mode: 0o700 });
    this.#ownLock ??= takeFolderLock(this.#own, this.#options.clock);
    this.#count += 1;
    const path = join(this.#own, `${String(this.#count).padStart(8, "0")}${EXTENSION}`);
    this.#current = { fd: openSync(path, "ax", 0o600), file: { path, bytes: 0 } };
    this.#files.push(this.#current.file);
    return this.#current;
  }

  #closeFile(): void {
    if (this.#current !== undefined) closeSync(this.#current.fd);
    this.#current = undefined;
  }

  #trim(): void {
    while (this.bytes > this.#options.maxBytes) {
      const oldest = this.oldest();
      if (oldest === undefined) return;
      this.#options.dropped(oldest.batches.reduce((sum, batch) => sum + batch.split("\n").length, 0));
      oldest.remove();
    }
  }

  #remove(file: SpoolFile): void {
    this.#files = this.#files.filter((known) => known !== file);
    rmSync(file.path, { force: true });
    for (const folder of this.#adopted.keys())
      if (!this.#files.some(({ path }) => path.startsWith(folder))) this.#leave(folder);
  }

  #leave(folder: string): void {
    this.#adopted.get(folder)?.release();
    this.#adopted.delete(folder);
    rmSync(folder, { recursive: true, force: true });
  }
}

function listFolder(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
