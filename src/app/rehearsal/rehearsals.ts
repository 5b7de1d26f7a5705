/**
 * Runs rehearsals beside live traffic: one at a time, with a time limit, in a child process that has one thread and a
 * lower priority. The process is kept for a minute, because operators usually rehearse, edit and rehearse again, and
 * loading the code takes most of the time. The single executable cannot start the process; there a rehearsal runs on the
 * serving thread in slices of a millisecond.
 */
import { type ChildProcess, fork } from "node:child_process";
import { setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import type { Clock, Timer } from "../../base/clock.ts";
import { isOneFile } from "../../base/embedded-files.ts";
import { trafficIn } from "../../pipeline/records/request-history.ts";
import { createPause, type Rehearsal, type RehearsalInput, rehearse } from "./rehearse.ts";

const MAX_REHEARSAL_MS = 60_000;
const KEEP_PROCESS_MS = 60_000;

/** The longest slice on the serving thread: requests wait for it. */
const SHARED_WORK_MS = 1;

/** Below the serving threads. Toward 19 the process would get almost no time on a machine without a free processor. */
const PRIORITY = 5;

/**
 * V8 compiles and collects on the one thread that has the lower priority; its helper threads would compete with the
 * serving threads. The large young generation fits many short-lived dry runs between two collections.
 */
const NODE_FLAGS: readonly string[] = ["--single-threaded", "--max-semi-space-size=32", "--max-old-space-size=512"];

const NEVER = new AbortController().signal;
const CLIENT_GONE = "the client closed the connection";

/** The message to the rehearsal process. It contains every environment variable that the configurations use. */
export interface RehearsalData {
  readonly input: RehearsalInput;
  readonly segments: readonly Uint8Array[];
}

/** A message from the rehearsal process. */
export type FromRehearsal =
  | { readonly isReady: true }
  | { readonly found: Rehearsal }
  /** Why there is no report. */
  | { readonly error: string };

/** The part of a child process that a rehearsal uses. */
export type RehearsalProcess = Pick<ChildProcess, "on" | "off" | "kill" | "ref" | "unref"> & {
  readonly channel?: { ref(): void; unref(): void } | null | undefined;
  send(data: RehearsalData, sent: (error: Error | null) => void): boolean;
};

export interface Rehearsals {
  /** Rejects with an Error that explains why there is no report. Stops when `clientGone` is aborted. */
  run(data: RehearsalData, clientGone?: AbortSignal): Promise<Rehearsal>;
}

export class RehearsalBusy extends Error {}

export function createRehearsals(clock: Clock, start: () => RehearsalProcess = startProcess): Rehearsals {
  let isRunning = false;
  let kept: { readonly child: RehearsalProcess; readonly timer: Timer } | undefined;

  /** Undefined if no process can be started. */
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
      return { child: forgetOnExit(start()), isNew: true };
    } catch {
      return undefined;
    }
  }

  /** Stops keeping a process that exits or fails while idle. */
  function forgetOnExit(child: RehearsalProcess): RehearsalProcess {
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
      kill(child);
    });
    kept = { child, timer };
  }

  return {
    async run(data, clientGone = NEVER) {
      if (isRunning) throw new RehearsalBusy("a rehearsal is running; try again when it has ended");
      isRunning = true;
      try {
        const taken = takeProcess();
        const found = taken && (await runInProcess(taken.child, taken.isNew, data, clock, clientGone));
        if (taken && found) keep(taken.child);
        return found ?? (await runHere(data, clock, clientGone));
      } finally {
        isRunning = false;
      }
    },
  };
}

function startProcess(): RehearsalProcess {
  if (isOneFile()) throw new Error("the single executable would start itself");
  const child = fork(fileURLToPath(new URL("./rehearsal-process.js", import.meta.url)), [], {
    execArgv: [...NODE_FLAGS],
    env: {},
    serialization: "advanced",
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  // Set here, before the process has loaded its code. If it exited already, its `exit` event says why.
  try {
    if (child.pid !== undefined) setPriority(child.pid, PRIORITY);
  } catch {
    // A normal priority only makes the rehearsal compete with requests.
  }
  return child as RehearsalProcess;
}

/** Resolves with undefined if the process could not be started. */
function runInProcess(
  child: RehearsalProcess,
  isNew: boolean,
  data: RehearsalData,
  clock: Clock,
  clientGone: AbortSignal,
): Promise<Rehearsal | undefined> {
  return new Promise((resolve, reject) => {
    let isReady = !isNew;
    const giveUp = (reason: string): void => {
      settle(() => reject(new Error(reason)));
      kill(child);
    };
    const timer = clock.after(MAX_REHEARSAL_MS, () => giveUp(`the rehearsal took longer than ${MAX_REHEARSAL_MS} ms`));
    const abort = (): void => giveUp(CLIENT_GONE);
    const settle = (finish: () => void): void => {
      timer.cancel();
      child.off("message", onMessage);
      child.off("error", onFailure);
      child.off("exit", onExit);
      clientGone.removeEventListener("abort", abort);
      finish();
    };
    const onMessage = (received: unknown): void => {
      const message = received as FromRehearsal;
      if ("isReady" in message) isReady = true;
      else if ("found" in message) settle(() => resolve(message.found));
      else giveUp(message.error);
    };
    const onFailure = (error: Error): void => {
      settle(() => (isReady ? reject(error) : resolve(undefined)));
      kill(child);
    };
    const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
      onFailure(new Error(`the rehearsal process ended with ${signal ?? code}`));
    child.on("message", onMessage);
    child.on("error", onFailure);
    child.on("exit", onExit);
    clientGone.addEventListener("abort", abort);
    if (clientGone.aborted) abort();
    // A send fails only if the process exited, and then `exit` gives the reason.
    else child.send(data, () => undefined);
  });
}

/** The process holds only copies, so it has nothing to finish. */
function kill(child: RehearsalProcess): void {
  child.kill("SIGKILL");
}

function runHere({ input, segments }: RehearsalData, clock: Clock, clientGone: AbortSignal): Promise<Rehearsal> {
  const pause = createPause(clock, SHARED_WORK_MS, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    if (clientGone.aborted) throw new Error(CLIENT_GONE);
  });
  return rehearse(input, trafficIn(segments), clock, pause);
}
