/**
 * The shutdown order. Each component registers its close function for a step; the steps run in the order of the list
 * below. A step that fails is logged, and the next one still runs.
 */
import { type Clock, wait } from "../base/clock.ts";
import type { Topology } from "../core/topology.ts";
import type { Logger } from "../observe/log/logger.ts";

/** In order: no component closes while an earlier step may still need it. */
export const SHUTDOWN_STEPS = [
  /** Stops reloads. */
  "watch",
  /** Backends notify their clients. */
  "backends",
  /** Stops accepting requests and waits for those in flight, up to the drain timeout. */
  "listeners",
  /** Closes pools, sessions and child processes. */
  "resources",
  "outgoing",
  "store",
  "measuring",
  /** Last, so that operators can watch the shutdown. */
  "admin",
] as const;
export type ShutdownStep = (typeof SHUTDOWN_STEPS)[number];

/** Longer than the grace period of child processes. */
const CLOSE_LIMIT_MS = 8_000;

type Close = (drainMs: number) => void | Promise<void>;

export interface Shutdown {
  readonly hasBegun: boolean;
  /** `close` receives the drain timeout for requests in flight. */
  at(step: ShutdownStep, close: Close): void;
  /** Runs every step. A second call while the first runs uses a drain timeout of 0. */
  run(drainMs: number): Promise<void>;
  /** Resolves when the shutdown is complete. */
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
    // The drain timeout bounds requests; this limit bounds child processes.
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
      // One event loop turn, so that the response to /quitquitquit and the last log lines are flushed.
      await new Promise((resolve) => setImmediate(resolve));
      resolveEnded();
    },
  };
}

export function drainBackends({ listeners }: Topology): void {
  for (const { routes } of listeners)
    for (const { backends } of routes) for (const { backend } of backends) backend.drain?.();
}
