/**
 * Rehearsals beside the traffic: one at a time, in a thread of its own, bounded in time. The thread stays for a while, because
 * who rehearses changes something and rehearses again, and most of the time goes into loading and compiling code. Where no
 * thread can be had (in the single executable) it runs on the thread that serves, in small pieces.
 */
import { Worker } from "node:worker_threads";
import type { Clock, Timer } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createPause } from "./pause.ts";
import { type Rehearsal, type RehearsalInput, rehearse } from "./rehearse.ts";

const MAX_REHEARSAL_MS = 60_000;
const KEEP_THREAD_MS = 60_000;

/** Without a thread of its own: so long may requests wait for it. */
const SHARED_WORK_MS = 1;

/** Walks leave nothing behind: with room for many of them the collector has little to do. */
const LIMITS = { maxYoungGenerationSizeMb: 96, maxOldGenerationSizeMb: 512 };

const NEVER = new AbortController().signal;
const LEFT = "the client has left";

/** What the thread gets. */
export interface RehearsalData {
  readonly input: RehearsalInput;
  readonly segments: readonly Uint8Array[];
}

export interface Rehearsals {
  /** Rejects with an Error that says why there is no report. Ends when nobody waits for it any more (`left`). */
  run(data: RehearsalData, left?: AbortSignal): Promise<Rehearsal>;
}

export class RehearsalBusy extends Error {}

/** What a rehearsal needs of a Worker. */
export type RehearsalThread = Pick<Worker, "on" | "once" | "off" | "postMessage" | "terminate" | "ref" | "unref">;

export function createRehearsals(clock: Clock, start: () => RehearsalThread = startWorker): Rehearsals {
  let isRunning = false;
  let kept: { readonly thread: RehearsalThread; readonly timer: Timer } | undefined;

  /** Undefined if none can be started. */
  function takeThread(): { readonly thread: RehearsalThread; readonly isNew: boolean } | undefined {
    if (kept) {
      const { thread, timer } = kept;
      kept = undefined;
      timer.cancel();
      thread.ref();
      return { thread, isNew: false };
    }
    try {
      return { thread: watched(start()), isNew: true };
    } catch {
      return undefined;
    }
  }

  /** An error of a thread that nobody waits for only means that it is not kept. */
  function watched(thread: RehearsalThread): RehearsalThread {
    const forget = (): void => {
      if (kept?.thread !== thread) return;
      kept.timer.cancel();
      kept = undefined;
    };
    thread.on("error", forget);
    thread.on("exit", forget);
    return thread;
  }

  function keep(thread: RehearsalThread): void {
    thread.unref();
    const timer = clock.after(KEEP_THREAD_MS, () => {
      kept = undefined;
      void thread.terminate();
    });
    kept = { thread, timer };
  }

  return {
    async run(data, left = NEVER) {
      if (isRunning) throw new RehearsalBusy("a rehearsal is running; try again when it has ended");
      isRunning = true;
      try {
        const taken = takeThread();
        const found = taken && (await inThread(taken.thread, taken.isNew, data, clock, left));
        if (taken && found) keep(taken.thread);
        return found ?? (await here(data, clock, left));
      } finally {
        isRunning = false;
      }
    },
  };
}

/** Undefined if the thread could not be started. */
function inThread(
  thread: RehearsalThread,
  isNew: boolean,
  data: RehearsalData,
  clock: Clock,
  left: AbortSignal,
): Promise<Rehearsal | undefined> {
  return new Promise((resolve, reject) => {
    let isOnline = !isNew;
    const giveUp = (reason: string): void => {
      settle(() => reject(new Error(reason)));
      void thread.terminate();
    };
    const timer = clock.after(MAX_REHEARSAL_MS, () => giveUp(`the rehearsal took longer than ${MAX_REHEARSAL_MS} ms`));
    const leave = (): void => giveUp(LEFT);
    const settle = (how: () => void): void => {
      timer.cancel();
      thread.off("online", online);
      thread.off("message", message);
      thread.off("error", error);
      thread.off("exit", exit);
      left.removeEventListener("abort", leave);
      how();
    };
    const online = (): void => {
      isOnline = true;
    };
    const message = (found: Rehearsal): void => settle(() => resolve(found));
    const error = (thrown: Error): void => {
      const isMissing = (thrown as NodeJS.ErrnoException).code === "ERR_MODULE_NOT_FOUND" || !isOnline;
      settle(() => (isMissing ? resolve(undefined) : reject(thrown)));
    };
    const exit = (code: number): void =>
      settle(() => reject(new Error(`the thread of the rehearsal ended with ${code}`)));
    thread.on("online", online);
    thread.on("message", message);
    thread.on("error", error);
    thread.on("exit", exit);
    left.addEventListener("abort", leave);
    if (left.aborted) leave();
    else thread.postMessage(data);
  });
}

function here({ input, segments }: RehearsalData, clock: Clock, left: AbortSignal): Promise<Rehearsal> {
  const pause = createPause(clock, SHARED_WORK_MS, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    if (left.aborted) throw new Error(LEFT);
  });
  return rehearse(input, trafficIn(segments), clock, pause);
}

function startWorker(): Worker {
  return new Worker(new URL("./rehearsal-thread.js", import.meta.url), { resourceLimits: LIMITS });
}
