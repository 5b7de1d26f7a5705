/**
 * Runs work on large bodies in slices, so that the event loop stays responsive. Work is a generator that yields every
 * few hundred microseconds. Small work is finished at once. Large work shares the slices: one turn of the event loop
 * spends one slice on all of it. Canceled work is dropped between slices.
 */
import { systemClock } from "./clock.ts";

/** Work that can be paused and resumed at each yield. */
export type Steps<T> = Generator<undefined, T, undefined>;

/** Bodies up to this size are processed at once, which takes about 1 ms. */
export const SLICED_BYTES = 64 * 1024;
/** The time that all sliced work together may take in one turn of the event loop. */
const SLICE_MS = 8;

interface Task {
  /** Runs one step; returns true when the work is done. */
  step(): boolean;
}

const waiting: Task[] = [];
let isScheduled = false;

/** Resolves after the other work that is due now. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Runs all steps at once, for small work and where nothing else could run. */
export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** Rejects with the error of the work. Once `isOver` returns true, the work stops, and the promise is never settled. */
export function runInSlices<T>(steps: Steps<T>, isOver: () => boolean): Promise<T> {
  return new Promise((resolve, reject) => {
    waiting.push({
      step() {
        // An exception here would stop the work of others in the same turn.
        try {
          if (isOver()) {
            steps.return(undefined as never);
            return true;
          }
          const { done, value } = steps.next();
          if (done === true) resolve(value);
          return done === true;
        } catch (error) {
          reject(error);
          return true;
        }
      },
    });
    schedule();
  });
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(turn);
}

/**
 * Gives one slice to the work that waited longest. Callbacks of finished work run in the same turn, so the slice ends
 * there.
 */
function turn(): void {
  isScheduled = false;
  const task = waiting.shift();
  if (task === undefined) return;
  const until = systemClock.monotonicMs() + SLICE_MS;
  let isDone = task.step();
  while (!isDone && systemClock.monotonicMs() < until) isDone = task.step();
  if (!isDone) waiting.push(task);
  if (waiting.length > 0) schedule();
}
