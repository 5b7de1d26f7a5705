/**
 * Runs long work in slices, so that the event loop stays responsive. The work is a generator, and each event-loop
 * iteration runs steps of one task.
 */
import { systemClock } from "./clock.ts";

export type Steps<T> = Generator<undefined, T, undefined>;

export const SLICED_BYTES = 64 * 1024;
const SLICE_MS = 8;

interface Task {
  step(): boolean;
}

const waiting: Task[] = [];
let isScheduled = false;

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** Rejects with the error of the work. Once `isOver` returns true, the work stops and the promise is never settled. */
export function runInSlices<T>(steps: Steps<T>, isOver: () => boolean): Promise<T> {
  return new Promise((resolve, reject) => {
    waiting.push({
      step() {
        // An uncaught exception would stop the work of other tasks.
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
 * Runs one slice of the task that has waited the longest. Callbacks of finished work run in the same event-loop
 * iteration, so the slice ends when a task is done.
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
