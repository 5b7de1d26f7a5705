/**
 * Wraps a logger to fold repeated warnings and errors. Repeats are written after growing pauses, with the number of
 * occurrences since the previous line.
 */
import type { Clock } from "../../base/clock.ts";
import type { LogFields, Logger } from "./logger.ts";

const PAUSES_MS = [10_000, 60_000, 600_000];
/** A kind that was silent for this long is logged as new. */
const RESET_AFTER_MS = 600_000;
/** Beyond this number, the least recent kind is forgotten. */
const REMEMBERED_KINDS = 200;

interface Repeat {
  lastMs: number;
  writtenMs: number;
  written: number;
  unwritten: number;
}

export function foldRepeats(logger: Logger, clock: Clock): Logger {
  const kinds = new Map<string, Repeat>();

  function folded(level: "warn" | "error", message: string, fields: LogFields | undefined): void {
    const nowMs = clock.monotonicMs();
    const key = JSON.stringify([level, message, fields]);
    const known = kinds.get(key);
    kinds.delete(key);
    const pauseMs = PAUSES_MS[Math.min((known?.written ?? 1) - 1, PAUSES_MS.length - 1)] ?? 0;
    const repeat = known === undefined || nowMs - known.lastMs >= RESET_AFTER_MS ? fresh(nowMs) : known;
    kinds.set(key, repeat);
    if (kinds.size > REMEMBERED_KINDS) kinds.delete(kinds.keys().next().value as string);
    repeat.lastMs = nowMs;
    if (repeat.written > 0 && nowMs - repeat.writtenMs < pauseMs) {
      repeat.unwritten += 1;
      return;
    }
    const count = repeat.unwritten + 1;
    logger[level](message, repeat.written === 0 ? fields : { ...fields, times: count });
    repeat.writtenMs = nowMs;
    repeat.written += 1;
    repeat.unwritten = 0;
  }

  return {
    ...logger,
    error: (message, fields) => folded("error", message, fields),
    warn: (message, fields) => folded("warn", message, fields),
    for: (module) => foldRepeats(logger.for(module), clock),
  };
}

function fresh(nowMs: number): Repeat {
  return { lastMs: nowMs, writtenMs: nowMs, written: 0, unwritten: 0 };
}
