/**
 * Runs tasks in the order of a virtual clock. Between two tasks, all pending `process.nextTick` callbacks and promise
 * jobs run, as between two callbacks of Node's event loop. Time passes only from task to task.
 *
 * A task belongs to a simulated process: to the one that was running when the task was added, unless another is given.
 * The tasks of a process that was ended do not run.
 */
import { Seeded } from "./seeded.ts";

/** The process of the network, the clients, and the backends. */
export const OUTSIDE = "";

export interface Task {
  /** Later if its process is paused. */
  atMs: number;
  readonly sequence: number;
  readonly process: string;
  /** Undefined after it has run or was canceled. */
  run: (() => void) | undefined;
}

/** An iteration of the event loop takes up to this long, so that a loop that waits for another event ends. */
const ITERATION_MS = 0.2;

/** The wall clock of the simulated processes is wrong by at most this much. */
export const MOST_CLOCK_ERROR_MS = 5 * 60_000;

/** Runs the pending `process.nextTick` callbacks and promise jobs. */
const runJobs = (process as unknown as { _tickCallback(): void })._tickCallback;

export class Scheduler {
  /** Milliseconds since the start. */
  nowMs = 0;
  /** The error of the wall clock of the simulated processes. */
  clockErrorMs = 0;
  /** The running process. */
  process = OUTSIDE;
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
  readonly #ended = new Set<string>();
  /** When a process that is or was paused continues. */
  readonly #paused = new Map<string, number>();

  constructor(seed: number) {
    this.#random = new Seeded(seed, "scheduler");
  }

  after(delayMs: number, run: () => void, process = this.process): Task {
    return this.at(this.nowMs + Math.max(0, delayMs), run, process);
  }

  /** Tasks of the same time run in the order of the calls. */
  at(atMs: number, run: () => void, process = this.process): Task {
    const task = { atMs, sequence: this.#sequence++, run, process };
    this.#push(task);
    return task;
  }

  /** The rest of the current task belongs to this process. Returns false if it has ended. */
  enter(process: string): boolean {
    this.process = process;
    return !this.isEnded(process);
  }

  /** The rest of the current task runs in this process: now, after its pause, or not at all if it has ended. */
  within(process: string, run: () => void): void {
    if (this.isPaused(process)) this.at(this.#resumesMs(process), run, process);
    else if (this.enter(process)) run();
  }

  /** A process runs no task for some time, as if its event loop were blocked. */
  pause(process: string, ms: number): void {
    this.#paused.set(process, this.nowMs + ms);
  }

  /** True if a process was paused at this time or later. */
  wasPaused(process: string, sinceMs: number): boolean {
    return this.#resumesMs(process) > sinceMs;
  }

  isPaused(process: string): boolean {
    return this.wasPaused(process, this.nowMs);
  }

  isEnded(process: string): boolean {
    return this.#ended.has(process);
  }

  /** Discards the tasks of a process. */
  end(process: string): void {
    this.#ended.add(process);
  }

  /** Runs in the next iteration of the event loop, in the order of the calls. */
  immediate(run: () => void): Task {
    this.#lastImmediateMs = Math.max(this.#lastImmediateMs, this.nowMs + this.#random.fraction() * ITERATION_MS);
    return this.at(this.#lastImmediateMs, run);
  }

  cancel(task: Task): void {
    task.run = undefined;
  }

  /** The number of tasks of a process that wait. */
  pending(process: string): number {
    return this.#heap.filter((task) => task.run !== undefined && task.process === process).length;
  }

  /** Runs tasks until `isOver`. Returns false if none is left before. Must not be called from a promise job. */
  runUntil(isOver: () => boolean): boolean {
    this.#runJobs();
    while (!isOver()) {
      const task = this.#pop();
      if (task === undefined) return false;
      const { run } = task;
      const resumesMs = this.#resumesMs(task.process);
      if (resumesMs > task.atMs && run !== undefined) {
        task.atMs = resumesMs;
        this.#push(task);
        continue;
      }
      if (run === undefined || !this.enter(task.process)) continue;
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

  #resumesMs(process: string): number {
    return this.#paused.size === 0 ? 0 : (this.#paused.get(process) ?? 0);
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

/** Runs in a process, and resolves outside of it. Does not resolve if the process ends before. */
export function runIn<Value>(scheduler: Scheduler, process: string, run: () => Promise<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    const leave = (then: () => void): void => void scheduler.after(0, then, OUTSIDE);
    const enter = (): void =>
      void run().then(
        (value) => leave(() => resolve(value)),
        (error: unknown) => leave(() => reject(error)),
      );
    scheduler.after(0, enter, process);
  });
}
