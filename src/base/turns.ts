/**
 * Work over large bodies in slices, so that the loop goes on for everybody else. A piece of work is a generator that
 * yields every few hundred microseconds; small ones are finished at once, large ones share the slices: however many
 * there are, one turn of the loop spends one slice on all of them. What nobody waits for any more is dropped between slices.
 */
import { systemClock } from "./clock.ts";

/** Work that can be left and taken up again wherever it yields. */
export type Steps<T> = Generator<undefined, T, undefined>;

/** Bodies up to this are worked on at once: it takes 1 ms or so. */
export const SLICED_BYTES = 64 * 1024;
/** What all such work together may take of one turn. */
const SLICE_MS = 8;

interface Task {
  /** One step; true when nothing is left to do. */
  step(): boolean;
}

const waiting: Task[] = [];
let isScheduled = false;

/** After the other work that is due now. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** For small work, and where nothing else can be done meanwhile. */
export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** Rejects with what the work throws. Once `isOver`, the work stops, and the promise is never settled. */
export function inTurns<T>(steps: Steps<T>, isOver: () => boolean): Promise<T> {
  return new Promise((resolve, reject) => {
    waiting.push({
      step() {
        // Nothing is thrown into the turn: the others' work would stop with it.
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

/** The one that waited longest gets the slice. What follows on its end runs in the same turn, so that the slice ends with it. */
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
