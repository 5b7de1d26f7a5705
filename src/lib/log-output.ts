/**
 * Where log lines go: a file descriptor, written in batches by the thread pool, one write at a time.
 * A log reader that is slow, full or gone never slows or ends the process: lines beyond the buffer are
 * dropped and counted.
 */
import { write, writeSync } from "node:fs";
import type { Clock } from "./clock.ts";

/** Lines waiting for a slow reader; more than this is lost rather than held. */
const MAX_BUFFERED_CHARS = 1024 * 1024;
const RETRY_MS = 20;
/** Lines wait this long for company: one write for many costs a fraction of one each. */
const GATHER_MS = 20;
/** Or until there is this much. */
const GATHER_CHARS = 32 * 1024;

export interface LogOutput {
  write(line: string): void;
  /** Lines that were dropped because nobody took them. */
  dropped(): number;
  /** Writes what is left, blocking: for the last lines before exit. */
  flushSync(): void;
}

export function openLogOutput(fd: number, clock: Clock): LogOutput {
  let waiting: string[] = [];
  let waitingChars = 0;
  let writing: Buffer | undefined;
  let scheduled = false;
  let dropped = 0;

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
      // A closed pipe or a full disk: these lines are lost, the next ones may get through again.
      if (error) dropped += countLines(chunk);
      writing = !error && written < chunk.length ? chunk.subarray(written) : undefined;
      if (writing !== undefined) writeOn();
      else if (waiting.length > 0 && !scheduled) flush();
    });
  }

  return {
    write(line) {
      if (waitingChars + line.length > MAX_BUFFERED_CHARS) {
        dropped += 1;
        return;
      }
      waiting.push(line);
      waitingChars += line.length;
      if (waitingChars >= GATHER_CHARS) flush();
      if (scheduled || waiting.length === 0) return;
      scheduled = true;
      clock.after(GATHER_MS, flush);
    },
    dropped: () => dropped,
    flushSync() {
      const rest = Buffer.concat([writing ?? Buffer.alloc(0), Buffer.from(waiting.join(""))]);
      writing = undefined;
      waiting = [];
      waitingChars = 0;
      try {
        for (let from = 0; from < rest.length; ) from += writeSync(fd, rest, from);
      } catch {
        dropped += countLines(rest);
      }
    },
  };
}

function countLines(chunk: Buffer): number {
  let lines = 0;
  for (const byte of chunk) if (byte === 10) lines += 1;
  return lines;
}
