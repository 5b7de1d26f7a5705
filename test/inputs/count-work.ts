/**
 * Counts the work of the gateway's code without a clock: the executed blocks, and the bytes, characters, and elements that
 * built-in functions touch. The same input always costs the same.
 *
 * The engine counts exactly only in code that it compiles after the counting starts, and the built-in functions are
 * replaced, so `countWork` runs the code in a new thread.
 */
import { once } from "node:events";
import { type Profiler, Session } from "node:inspector";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { countBuiltins, takeTouched } from "./count-builtins.ts";
import type { Hostile } from "./hostile.ts";

/** Not counted: the time-sliced work yields as often as the clock says, and inputs are not work of the gateway. */
const IGNORED = /\/src\/base\/sliced-work\.[jt]s$|\/test\/inputs\/(?!known-work)/;

export interface Task {
  /** Exports records of inputs. */
  readonly module: string;
  readonly input: string;
  readonly shape: string;
  readonly pieceBytes: number;
  readonly n: number;
}

export interface Work {
  readonly steps: number;
  readonly touched: number;
  /** What the reader returned, or why it refused the input. */
  readonly outcome: string;
}

export async function countWork(tasks: readonly Task[]): Promise<readonly Work[]> {
  const worker = new Worker(new URL(import.meta.url), { workerData: { tasksToCount: tasks } });
  try {
    const [works] = (await once(worker, "message")) as [Work[]];
    return works;
  } finally {
    await worker.terminate();
  }
}

async function countHere(tasks: readonly Task[]): Promise<Work[]> {
  const session = new Session();
  session.connect();
  session.post("Profiler.enable");
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  countBuiltins();
  const works: Work[] = [];
  for (const ofInput of byInput(tasks)) {
    const actions = await prepare(ofInput);
    // Reading the counts takes longer than most tasks, so it happens once for each of them.
    takeSteps(session);
    takeTouched();
    for (const action of actions) {
      const outcome = await outcomeOf(action);
      const touched = takeTouched();
      const steps = takeSteps(session);
      // Reading the counts calls built-in functions too.
      takeTouched();
      works.push({ steps, touched, outcome });
    }
  }
  return works;
}

function byInput(tasks: readonly Task[]): readonly (readonly Task[])[] {
  const inputs = new Map<string, Task[]>();
  for (const task of tasks) {
    const ofInput = inputs.get(task.input);
    if (ofInput === undefined) inputs.set(task.input, [task]);
    else ofInput.push(task);
  }
  return [...inputs.values()];
}

async function prepare(tasks: readonly Task[]): Promise<readonly (() => unknown)[]> {
  const warm = new Set<string>();
  const actions: (() => unknown)[] = [];
  for (const { module, input, shape, pieceBytes, n } of tasks) {
    const records = Object.values(
      (await import(module)) as Readonly<Record<string, Readonly<Record<string, Hostile>>>>,
    );
    const hostile = records.find((record) => Object.hasOwn(record, input))?.[input];
    if (hostile === undefined) throw new Error(`${module} has no input ${input}`);
    // The first reading fills caches.
    if (!warm.has(shape)) await outcomeOf(hostile.prepare(shape, n, pieceBytes));
    warm.add(shape);
    actions.push(hostile.prepare(shape, n, pieceBytes));
  }
  return actions;
}

/** Readers refuse inputs with an error. */
export async function outcomeOf(action: () => unknown): Promise<string> {
  try {
    return `read: ${String(await action()).slice(0, 200)}`;
  } catch (error) {
    return `refused: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`.slice(0, 300);
  }
}

function takeSteps(session: Session): number {
  let steps = 0;
  session.post("Profiler.takePreciseCoverage", (error, coverage?: Profiler.TakePreciseCoverageReturnType) => {
    if (error || coverage === undefined) throw error ?? new Error("the engine reported no coverage");
    for (const { url, functions } of coverage.result)
      if (url.startsWith("file:") && !IGNORED.test(url))
        for (const { ranges } of functions) for (const { count } of ranges) steps += count;
  });
  return steps;
}

if (!isMainThread && workerData?.tasksToCount !== undefined)
  parentPort?.postMessage(await countHere(workerData.tasksToCount as Task[]));
