/**
 * Rehearsals beside the traffic: one at a time, in a process of its own with one thread and a lower priority, bounded in time.
 * It stays for a while, because who rehearses changes something and rehearses again, and most of the time goes into loading and
 * compiling code. Where none can be had (in the single executable) the rehearsal runs on the thread that serves, in small pieces.
 */
import type { Clock, Timer } from "../../lib/process/clock.ts";
import { trafficIn } from "../../pipeline/records/fact-ring.ts";
import { createPause } from "./pause.ts";
import type { FromRehearsal, RehearsalData } from "./rehearsal-messages.ts";
import { type Rehearsal, rehearse } from "./rehearse.ts";
import { type RehearsalProcess, startRehearsalProcess } from "./start-rehearsal.ts";

const MAX_REHEARSAL_MS = 60_000;
const KEEP_PROCESS_MS = 60_000;

/** Without a process of its own: so long may requests wait for it. */
const SHARED_WORK_MS = 1;

const NEVER = new AbortController().signal;
const LEFT = "the client has left";

export interface Rehearsals {
  /** Rejects with an Error that says why there is no report. Ends when nobody waits for it any more (`left`). */
  run(data: RehearsalData, left?: AbortSignal): Promise<Rehearsal>;
}

export class RehearsalBusy extends Error {}

export function createRehearsals(clock: Clock, start: () => RehearsalProcess = startRehearsalProcess): Rehearsals {
  let isRunning = false;
  let kept: { readonly child: RehearsalProcess; readonly timer: Timer } | undefined;

  /** Undefined if none can be started. */
  function takeProcess(): { readonly child: RehearsalProcess; readonly isNew: boolean } | undefined {
    if (kept) {
      const { child, timer } = kept;
      kept = undefined;
      timer.cancel();
      child.ref();
      child.channel?.ref();
      return { child, isNew: false };
    }
    try {
      return { child: watched(start()), isNew: true };
    } catch {
      return undefined;
    }
  }

  /** An error of a process that nobody waits for only means that it is not kept. */
  function watched(child: RehearsalProcess): RehearsalProcess {
    const forget = (): void => {
      if (kept?.child !== child) return;
      kept.timer.cancel();
      kept = undefined;
    };
    child.on("error", forget);
    child.on("exit", forget);
    return child;
  }

  function keep(child: RehearsalProcess): void {
    child.unref();
    child.channel?.unref();
    const timer = clock.after(KEEP_PROCESS_MS, () => {
      kept = undefined;
      end(child);
    });
    kept = { child, timer };
  }

  return {
    async run(data, left = NEVER) {
      if (isRunning) throw new RehearsalBusy("a rehearsal is running; try again when it has ended");
      isRunning = true;
      try {
        const taken = takeProcess();
        const found = taken && (await inProcess(taken.child, taken.isNew, data, clock, left));
        if (taken && found) keep(taken.child);
        return found ?? (await here(data, clock, left));
      } finally {
        isRunning = false;
      }
    },
  };
}

/** Undefined if the process could not be started. */
function inProcess(
  child: RehearsalProcess,
  isNew: boolean,
  data: RehearsalData,
  clock: Clock,
  left: AbortSignal,
): Promise<Rehearsal | undefined> {
  return new Promise((resolve, reject) => {
    let isReady = !isNew;
    const giveUp = (reason: string): void => {
      settle(() => reject(new Error(reason)));
      end(child);
    };
    const timer = clock.after(MAX_REHEARSAL_MS, () => giveUp(`the rehearsal took longer than ${MAX_REHEARSAL_MS} ms`));
    const leave = (): void => giveUp(LEFT);
    const settle = (how: () => void): void => {
      timer.cancel();
      child.off("message", message);
      child.off("error", failed);
      child.off("exit", exit);
      left.removeEventListener("abort", leave);
      how();
    };
    const message = (said: unknown): void => {
      const from = said as FromRehearsal;
      if ("isReady" in from) isReady = true;
      else if ("found" in from) settle(() => resolve(from.found));
      else giveUp(from.error);
    };
    const failed = (error: Error): void => {
      settle(() => (isReady ? reject(error) : resolve(undefined)));
      end(child);
    };
    const exit = (code: number | null, signal: NodeJS.Signals | null): void =>
      failed(new Error(`the process of the rehearsal ended with ${signal ?? code}`));
    child.on("message", message);
    child.on("error", failed);
    child.on("exit", exit);
    left.addEventListener("abort", leave);
    if (left.aborted) leave();
    // If it cannot be sent, the process has ended, which says more.
    else child.send(data, () => undefined);
  });
}

/** Its records and configurations are copies: there is nothing that it should finish. */
function end(child: RehearsalProcess): void {
  child.kill("SIGKILL");
}

function here({ input, segments }: RehearsalData, clock: Clock, left: AbortSignal): Promise<Rehearsal> {
  const pause = createPause(clock, SHARED_WORK_MS, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    if (left.aborted) throw new Error(LEFT);
  });
  return rehearse(input, trafficIn(segments), clock, pause);
}
