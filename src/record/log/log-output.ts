/**
 * Writes lines in asynchronous batches to a file descriptor or to a file that is rotated. Lines beyond the buffer are
 * dropped and counted. Every line is escaped here, whatever wrote it.
 */
import { write, writeSync } from "node:fs";
import { type FileHandle, open, rename, rm, stat } from "node:fs/promises";
import type { Clock } from "../../base/clock.ts";
import { escapeOutput } from "../../base/safe-text.ts";

const MAX_BUFFERED_CHARS = 1024 * 1024;
const RETRY_MS = 20;
const GATHER_MS = 20;
const GATHER_CHARS = 32 * 1024;

export interface LogOutput {
  write(line: string): void;
  dropped(): number;
  /** Writes or sends the buffered lines before it returns. Lines of a write in progress are not included. */
  flushSync(): void;
}

interface OpenLogOutput extends LogOutput {
  flushed(): Promise<void>;
}

export function openLogOutput(fd: number, clock: Clock): OpenLogOutput {
  let waiting: string[] = [];
  let waitingChars = 0;
  let writing: Buffer | undefined;
  let scheduled = false;
  let dropped = 0;
  let idle: (() => void)[] = [];

  function flush(): void {
    scheduled = false;
    if (writing !== undefined || waiting.length === 0) return;
    writing = Buffer.from(waiting.join(""));
    waiting = [];
    waitingChars = 0;
    writeOn();
  }

  function writeOn(): void {
    const chunk = writing;
    if (chunk === undefined) return;
    write(fd, chunk, 0, chunk.length, null, (error, written) => {
      if (error?.code === "EAGAIN") {
        clock.after(RETRY_MS, writeOn);
        return;
      }
      // The write failed, for example because the pipe is closed. These lines are lost, but later writes may succeed.
      if (error) dropped += countLines(chunk);
      writing = !error && written < chunk.length ? chunk.subarray(written) : undefined;
      if (writing !== undefined) writeOn();
      else if (waiting.length > 0 && !scheduled) flush();
      if (writing !== undefined || waiting.length > 0) return;
      for (const done of idle) done();
      idle = [];
    });
  }

  return {
    write(line) {
      if (waitingChars + line.length > MAX_BUFFERED_CHARS) {
        dropped += 1;
        return;
      }
      const safe = escapeOutput(line);
      waiting.push(safe);
      waitingChars += safe.length;
      if (waitingChars >= GATHER_CHARS) flush();
      if (scheduled || waiting.length === 0) return;
      scheduled = true;
      clock.after(GATHER_MS, flush);
    },
    dropped: () => dropped,
    flushSync() {
      const rest = Buffer.from(waiting.join(""));
      waiting = [];
      waitingChars = 0;
      try {
        for (let from = 0; from < rest.length; ) from += writeSync(fd, rest, from);
      } catch {
        dropped += countLines(rest);
      }
    },
    flushed() {
      flush();
      if (writing === undefined) return Promise.resolve();
      return new Promise((resolve) => {
        idle.push(resolve);
      });
    },
  };
}

function countLines(chunk: Buffer): number {
  let lines = 0;
  for (const byte of chunk) if (byte === 10) lines += 1;
  return lines;
}

interface RotatingFileOptions {
  readonly path: string;
  readonly maxBytes: number;
  readonly keep: number;
  readonly clock: Clock;
  dropped(lines: number): void;
  /** Called with the error when writing starts to fail, and with undefined when it works again. */
  changed(failure: Error | undefined): void;
}

interface RotatingFile {
  write(line: string): void;
  readonly isWritable: boolean;
  close(): Promise<void>;
}

const FILE_GATHER_MS = 50;
const FILE_RETRY_MS = 1_000;
const WAITING_CHARS = 4 * 1024 * 1024;
/** Only the owner may read the file, because it contains users' requests. */
const MODE = 0o600;

export function openRotatingFile(options: RotatingFileOptions): RotatingFile {
  const { path, maxBytes, keep, clock } = options;
  let waiting: string[] = [];
  /** Includes the lines of a write in progress, because they wait again if it fails. */
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
    try {
      await append(lines.join(""));
      waitingChars -= chars;
      if (isFailing) options.changed(undefined);
      isFailing = false;
    } catch (error) {
      await handle?.close().catch(() => undefined);
      handle = undefined;
      waiting = [...lines, ...waiting];
      if (!isFailing) options.changed(error as Error);
      isFailing = true;
    }
  }

  function schedule(): void {
    if (isScheduled || writing !== undefined || waiting.length === 0) return;
    isScheduled = true;
    clock.after(isFailing ? FILE_RETRY_MS : FILE_GATHER_MS, () => {
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
