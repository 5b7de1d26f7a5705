/**
 * Counts the executed blocks of this project's code, so that tests of growth do not depend on time. Loops inside
 * functions of the JavaScript engine count only as the callbacks that they call.
 *
 * The engine counts exactly only in code that it compiles after the counting starts, so the code runs in a new thread.
 */
import { once } from "node:events";
import { type Profiler, Session } from "node:inspector";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

/** The module exports `run(name, n)`, which may return a promise. Returns the steps of each call. */
export async function countSteps(module: string, calls: readonly (readonly [name: string, n: number])[]) {
  const worker = new Worker(new URL(import.meta.url), { workerData: { module, calls } });
  try {
    const [counts] = (await once(worker, "message")) as [number[]];
    return counts;
  } finally {
    await worker.terminate();
  }
}

async function countHere({ module, calls }: { module: string; calls: [string, number][] }): Promise<number[]> {
  const session = new Session();
  session.connect();
  session.post("Profiler.enable");
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  const { run } = (await import(module)) as { run(name: string, n: number): void | Promise<void> };
  const stepsOf = async (name: string, n: number): Promise<number> => {
    takeSteps(session);
    await run(name, n);
    return takeSteps(session);
  };
  // The engine sometimes adds counts when it compiles a function again, so the smaller of two runs is taken.
  const counts: number[] = [];
  for (const [name, n] of calls) counts.push(Math.min(await stepsOf(name, n), await stepsOf(name, n)));
  return counts;
}

function takeSteps(session: Session): number {
  let steps = 0;
  session.post("Profiler.takePreciseCoverage", (error, coverage?: Profiler.TakePreciseCoverageReturnType) => {
    if (error || coverage === undefined) throw error ?? new Error("the engine reported no coverage");
    for (const { url, functions } of coverage.result)
      if (url.includes("/src/")) for (const { ranges } of functions) for (const { count } of ranges) steps += count;
  });
  return steps;
}

if (!isMainThread && workerData?.module !== undefined) parentPort?.postMessage(await countHere(workerData));
