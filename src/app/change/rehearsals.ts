/**
 * Rehearsals beside the traffic: one at a time, in a thread of its own, bounded in time. Where no thread can be had (in
 * the single executable) it runs on the thread that serves, in small pieces.
 */
import { Worker } from "node:worker_threads";
import type { Clock } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createPause } from "./pause.ts";
import { type Rehearsal, type RehearsalInput, rehearse } from "./rehearse.ts";

const MAX_REHEARSAL_MS = 60_000;

/** Without a thread of its own: so long may requests wait for it. */
const SHARED_WORK_MS = 1;

/** Walks leave nothing behind: with room for many of them the collector has little to do. */
const LIMITS = { maxYoungGenerationSizeMb: 96, maxOldGenerationSizeMb: 512 };

/** What the thread is started with. */
export interface RehearsalData {
  readonly input: RehearsalInput;
  readonly segments: readonly Uint8Array[];
}

export interface Rehearsals {
  /** Rejects with an Error that says why there is no report. */
  run(data: RehearsalData): Promise<Rehearsal>;
}

export class RehearsalBusy extends Error {}

export function createRehearsals(clock: Clock, start: (data: RehearsalData) => Worker = startWorker): Rehearsals {
  let isRunning = false;
  return {
    async run(data) {
      if (isRunning) throw new RehearsalBusy("a rehearsal is running; try again when it has ended");
      isRunning = true;
      try {
        return (await inThread(data, clock, start)) ?? (await here(data, clock));
      } finally {
        isRunning = false;
      }
    },
  };
}

/** Undefined if the thread could not be started. */
function inThread(
  data: RehearsalData,
  clock: Clock,
  start: (data: RehearsalData) => Worker,
): Promise<Rehearsal | undefined> {
  let worker: Worker;
  try {
    worker = start(data);
  } catch {
    return Promise.resolve(undefined);
  }
  return new Promise((resolve, reject) => {
    const timer = clock.after(MAX_REHEARSAL_MS, () => {
      void worker.terminate();
      reject(new Error(`the rehearsal took longer than ${MAX_REHEARSAL_MS} ms`));
    });
    let isOnline = false;
    worker.on("online", () => {
      isOnline = true;
    });
    worker.on("message", (found: Rehearsal) => {
      timer.cancel();
      resolve(found);
      void worker.terminate();
    });
    worker.on("error", (error) => {
      timer.cancel();
      const isMissing = (error as NodeJS.ErrnoException).code === "ERR_MODULE_NOT_FOUND" || !isOnline;
      if (isMissing) resolve(undefined);
      else reject(error);
    });
    worker.on("exit", (code) => {
      timer.cancel();
      reject(new Error(`the thread of the rehearsal ended with ${code}`));
    });
  });
}

function here({ input, segments }: RehearsalData, clock: Clock): Promise<Rehearsal> {
  const pause = createPause(clock, SHARED_WORK_MS, () => new Promise((resolve) => setImmediate(resolve)));
  return rehearse(input, trafficIn(segments), clock, pause);
}

function startWorker(workerData: RehearsalData): Worker {
  return new Worker(new URL("./rehearsal-thread.js", import.meta.url), { workerData, resourceLimits: LIMITS });
}
