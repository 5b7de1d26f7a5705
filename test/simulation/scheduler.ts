/**
 * Runs tasks in the order of a virtual clock. Between two tasks, all pending `process.nextTick` callbacks and promise
 * jobs run, as between two callbacks of Node's event loop. Time passes only from task to task.
 */
import { Seeded } from "./seeded.ts";

export interface Task {
  readonly atMs: number;
  readonly sequence: number;
  /** Undefined after it has run or was canceled. */
  run: (() => void) | undefined;
}

/** An iteration of the event loop takes up to this long, so that a loop that waits for another event ends. */
const ITERATION_MS = 0.2;

/** Runs the pending `process.nextTick` callbacks and promise jobs. */
const runJobs = (process as unknown as { _tickCallback(): void })._tickCallback;

export class Scheduler {
  /** Milliseconds since the start. */
  nowMs = 0;
  /** Tasks that have run. */
  steps = 0;
  /** Receives exceptions that no code caught. */
  onUncaught: (error: unknown) => void = (error) => {
    throw error;
  };
  readonly #random: Seeded;
  readonly #heap: Task[] = [];
  #sequence = 0;
  #lastImmediateMs = 0;

  constructor(seed: number) {
    this.#random = new Seeded(seed, "scheduler");
  }

  after(delayMs: number, run: () => void): Task {
    const task = { atMs: this.nowMs + Math.max(0, delayMs), sequence: this.#sequence++, run };
    this.#push(task);
    return task;
  }

  /** Runs in the next iteration of the event loop, in the order of the calls. */
  immediate(run: () => void): Task {
    this.#lastImmediateMs = Math.max(this.#lastImmediateMs, this.nowMs + this.#random.fraction() * ITERATION_MS);
    return this.after(this.#lastImmediateMs - this.nowMs, run);
  }

  cancel(task: Task): void {
    task.run = undefined;
  }

  /** The number of tasks that wait. */
  get pending(): number {
    return this.#heap.filter(({ run }) => run !== undefined).length;
  }

  /** Runs tasks until `isOver`. Returns false if none is left before. Must not be called from a promise job. */
  runUntil(isOver: () => boolean): boolean {
    this.#runJobs();
    while (!isOver()) {
      const task = this.#pop();
      if (task === undefined) return false;
      const { run } = task;
      if (run === undefined) continue;
      task.run = undefined;
      this.nowMs = Math.max(this.nowMs, task.atMs);
      this.steps += 1;
      try {
        run();
      } catch (error) {
        this.onUncaught(error);
      }
      this.#runJobs();
    }
    return true;
  }

  #runJobs(): void {
    for (;;) {
      try {
        runJobs();
        return;
      } catch (error) {
        this.onUncaught(error);
      }
    }
  }

  #push(task: Task): void {
    const heap = this.#heap;
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(task, heap[parent] as Task)) break;
      heap[at] = heap[parent] as Task;
      at = parent;
    }
    heap[at] = task;
  }

  #pop(): Task | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Task, heap[child] as Task)) child += 1;
      if (!isBefore(heap[child] as Task, last)) break;
      heap[at] = heap[child] as Task;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(a: Task, b: Task): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.sequence < b.sequence);
}
