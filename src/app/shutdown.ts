/**
 * Runs the steps of a shutdown in order. If a step fails, the failure is logged and the next step runs.
 */
import { type Clock, wait } from "../base/clock.ts";
import type { Backend } from "../core/backend.ts";
import type { Topology } from "../core/topology.ts";
import type { Logger } from "../record/log/logger.ts";

/** The steps are ordered so that a component closes after the components that use it. */
export const SHUTDOWN_STEPS = [
  /** Stops reloads. */
  "watch",
  /** Ends endless streams of backends. */
  "backends",
  /** Stops accepting requests and drains those in flight. */
  "listeners",
  /** Closes pools, sessions, and child processes. */
  "resources",
  "outgoing",
  "store",
  "measuring",
  /** The admin interface closes last, so that operators can watch the shutdown. */
  "admin",
] as const;
export type ShutdownStep = (typeof SHUTDOWN_STEPS)[number];

/** This limit must exceed the grace period of child processes. */
const CLOSE_LIMIT_MS = 8_000;

type Close = (drainMs: number) => void | Promise<void>;

export interface Shutdown {
  readonly hasBegun: boolean;
  /** `close` receives the drain timeout for requests in flight. */
  at(step: ShutdownStep, close: Close): void;
  /** Runs all steps. A second call uses a drain timeout of 0. */
  run(drainMs: number): Promise<void>;
  readonly ended: Promise<void>;
}

export function createShutdown(clock: Clock, logger: Logger): Shutdown {
  const closing = new Map<ShutdownStep, Close[]>(SHUTDOWN_STEPS.map((step) => [step, []]));
  let hasBegun = false;
  let resolveEnded: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    resolveEnded = resolve;
  });

  async function runStep(step: ShutdownStep, drainMs: number): Promise<void> {
    const closes = (closing.get(step) ?? []).map(async (close) => {
      try {
        await close(drainMs);
      } catch (error) {
        logger.warn("could not close", { what: step, error: String(error) });
      }
    });
    const all = Promise.all(closes);
    // The drain timeout does not bound this step, so it has its own limit.
    await (step === "resources" ? Promise.race([all, wait(clock, CLOSE_LIMIT_MS)]) : all);
  }

  return {
    get hasBegun() {
      return hasBegun;
    },
    ended,
    at: (step, close) => void closing.get(step)?.push(close),
    async run(drainMs) {
      const limitMs = hasBegun ? 0 : drainMs;
      hasBegun = true;
      for (const step of SHUTDOWN_STEPS) await runStep(step, limitMs);
      // Pending writes, such as the last log lines, get one more event-loop iteration.
      await new Promise((resolve) => setImmediate(resolve));
      resolveEnded();
    },
  };
}

/** Resolves with the promise, or when the time is over. */
export function within(promise: Promise<void>, clock: Clock, limitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(limitMs, resolve);
    void promise.then(() => {
      timer.cancel();
      resolve();
    });
  });
}

const SUSPENDED_CHECK_MS = 100;

/** Resolves when no call of a backend waits for its client, or at `untilMs` of the monotonic clock. */
export async function suspendedCallsEnded(topology: Topology, clock: Clock, untilMs: number): Promise<void> {
  const isWaiting = ({ backend }: { readonly backend: Backend }): boolean => backend.mcp?.hasSuspendedCalls() === true;
  while (
    clock.monotonicMs() < untilMs &&
    topology.listeners.some(({ routes }) => routes.some(({ backends }) => backends.some(isWaiting)))
  )
    await wait(clock, SUSPENDED_CHECK_MS);
}

export function drainBackends({ listeners }: Topology): void {
  for (const { routes } of listeners)
    for (const { backends } of routes) for (const { backend } of backends) backend.mcp?.drain();
}
