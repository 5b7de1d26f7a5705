/**
 * Runs one rehearsal or access review at a time, in a child process or, if none can be started, in slices on the
 * serving thread.
 */
import { type ChildProcess, fork } from "node:child_process";
import { setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import type { Clock, Timer } from "../../base/clock.ts";
import { isOneFile } from "../../base/embedded-files.ts";
import type { AccessFound } from "./access.ts";
import { createPause, type Rehearsal } from "./rehearse.ts";
import { type Found, type Job, runJob } from "./run-job.ts";

/** The process has a low priority, so a busy machine slows it down. */
const MAX_REHEARSAL_MS = 180_000;
const KEEP_PROCESS_MS = 60_000;

/** Work on the serving thread yields after about this time, because requests wait for it. */
const SHARED_WORK_MS = 1;

const PRIORITY = 5;

/** `--single-threaded` disables helper threads of V8, which would not have the lower priority. */
const NODE_FLAGS: readonly string[] = ["--single-threaded", "--max-semi-space-size=32", "--max-old-space-size=512"];

const NEVER = new AbortController().signal;
const CLIENT_GONE = "the client closed the connection";

export type FromRehearsal =
  | { readonly isReady: true }
  | { readonly found: Rehearsal | AccessFound }
  | { readonly error: string };

export type RehearsalProcess = Pick<ChildProcess, "on" | "off" | "kill" | "ref" | "unref"> & {
  readonly channel?: { ref(): void; unref(): void } | null | undefined;
  send(data: Job, sent: (error: Error | null) => void): boolean;
};

export interface Rehearsals {
  /** Rejects if there is no report. Stops when `clientGone` is aborted. */
  run<Data extends Job>(data: Data, clientGone?: AbortSignal): Promise<Found<Data>>;
}

export class RehearsalBusy extends Error {}

export function createRehearsals(clock: Clock, start: () => RehearsalProcess = startProcess): Rehearsals {
  let isRunning = false;
  let kept: { readonly child: RehearsalProcess; readonly timer: Timer } | undefined;

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
    async run<Data extends Job>(data: Data, clientGone = NEVER) {
      if (isRunning) throw new RehearsalBusy("a rehearsal is running; try again when it has ended");
      isRunning = true;
      try {
        const taken = takeProcess();
        const found = taken && (await runInProcess(taken.child, taken.isNew, data, clock, clientGone));
        if (taken && found) keep(taken.child);
        return (found ?? (await runHere(data, clock, clientGone))) as Found<Data>;
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
  try {
    if (child.pid !== undefined) setPriority(child.pid, PRIORITY);
  } catch {
    // The process has exited, or it runs with normal priority.
  }
  return child as RehearsalProcess;
}

/** Resolves with undefined if the process could not start. */
function runInProcess(
  child: RehearsalProcess,
  isNew: boolean,
  data: Job,
  clock: Clock,
  clientGone: AbortSignal,
): Promise<Rehearsal | AccessFound | undefined> {
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
    // If sending fails, the process has exited, and the `exit` event reports the reason.
    else child.send(data, () => undefined);
  });
}

/** The process has only copies of data, so it can be killed at any time. */
function kill(child: RehearsalProcess): void {
  child.kill("SIGKILL");
}

function runHere(data: Job, clock: Clock, clientGone: AbortSignal): Promise<Rehearsal | AccessFound> {
  const pause = createPause(clock, SHARED_WORK_MS, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    if (clientGone.aborted) throw new Error(CLIENT_GONE);
  });
  return runJob(data, clock, pause);
}
