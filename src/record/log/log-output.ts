/**
 * Writes log lines to a file descriptor in asynchronous batches. Lines beyond the buffer are dropped and counted.
 * Every line is escaped here, whatever wrote it.
 */
import { write, writeSync } from "node:fs";
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

export interface OpenLogOutput extends LogOutput {
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
