/**
 * Appends lines to a file and rotates it when it is full: `audit.log` becomes `audit.log.1`, and so on. Lines that
 * cannot be written are retried, and lines beyond the buffer are dropped and counted.
 */
import { type FileHandle, open, rename, rm, stat } from "node:fs/promises";
import type { Clock } from "../../base/clock.ts";
import { escapeOutput } from "../../base/safe-text.ts";

export interface RotatingFileOptions {
  readonly path: string;
  readonly maxBytes: number;
  readonly keep: number;
  readonly clock: Clock;
  dropped(lines: number): void;
  /** Called with the error when writing starts to fail, and with undefined when it works again. */
  changed(failure: Error | undefined): void;
}

export interface RotatingFile {
  write(line: string): void;
  readonly isWritable: boolean;
  close(): Promise<void>;
}

const GATHER_MS = 50;
const RETRY_MS = 1_000;
const WAITING_CHARS = 4 * 1024 * 1024;
/** Only the owner may read the file, because it contains users' requests. */
const MODE = 0o600;

export function openRotatingFile(options: RotatingFileOptions): RotatingFile {
  const { path, maxBytes, keep, clock } = options;
  let waiting: string[] = [];
  let waitingChars = 0;
  let handle: FileHandle | undefined;
  let size = 0;
  let isFailing = false;
  let isScheduled = false;
  let writing: Promise<void> | undefined;

  async function reopen(): Promise<FileHandle> {
    handle = await open(path, "a", MODE);
    size = (await handle.stat()).size;
    return handle;
  }

  async function rotate(): Promise<void> {
    await handle?.close();
    handle = undefined;
    await rm(`${path}.${keep}`, { force: true });
    for (let i = keep - 1; i >= 1; i--) await rename(`${path}.${i}`, `${path}.${i + 1}`).catch(ignoreMissing);
    if (keep > 0) await rename(path, `${path}.1`).catch(ignoreMissing);
    else await rm(path, { force: true });
  }

  /** Reopens the file if the path no longer names it. */
  async function current(): Promise<FileHandle> {
    if (handle === undefined) return reopen();
    const [named, own] = await Promise.all([stat(path).catch(missing), handle.stat()]);
    size = own.size;
    if (named !== undefined && named.ino === own.ino && named.dev === own.dev) return handle;
    await handle.close();
    handle = undefined;
    return reopen();
  }

  async function append(text: string): Promise<void> {
    const bytes = Buffer.from(text);
    let file = await current();
    if (size > 0 && size + bytes.length > maxBytes) {
      await rotate();
      file = await reopen();
    }
    let written = 0;
    try {
      while (written < bytes.length) written += (await file.write(bytes, written)).bytesWritten;
      size += bytes.length;
    } catch (error) {
      // A partial line would corrupt the next line.
      if (written > 0) await file.truncate(size).catch(() => undefined);
      throw error;
    }
  }

  async function flush(): Promise<void> {
    const lines = waiting;
    const chars = waitingChars;
    waiting = [];
    waitingChars = 0;
    try {
      await append(lines.join(""));
      if (isFailing) options.changed(undefined);
      isFailing = false;
    } catch (error) {
      await handle?.close().catch(() => undefined);
      handle = undefined;
      waiting = [...lines, ...waiting];
      waitingChars += chars;
      if (!isFailing) options.changed(error as Error);
      isFailing = true;
    }
  }

  function schedule(): void {
    if (isScheduled || writing !== undefined || waiting.length === 0) return;
    isScheduled = true;
    clock.after(isFailing ? RETRY_MS : GATHER_MS, () => {
      isScheduled = false;
      start();
    });
  }

  function start(): void {
    if (writing !== undefined || waiting.length === 0) return;
    writing = flush().finally(() => {
      writing = undefined;
      schedule();
    });
  }

  return {
    write(given) {
      const line = escapeOutput(given);
      if (waitingChars + line.length > WAITING_CHARS) {
        options.dropped(1);
        return;
      }
      waiting.push(line);
      waitingChars += line.length;
      schedule();
    },
    get isWritable() {
      return !isFailing;
    },
    async close() {
      await writing;
      start();
      await writing;
      if (waiting.length > 0) options.dropped(waiting.length);
      waiting = [];
      await handle?.close().catch(() => undefined);
      handle = undefined;
    },
  };
}

function missing(error: NodeJS.ErrnoException): undefined {
  ignoreMissing(error);
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}
