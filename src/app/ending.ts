/**
 * The order of the end. Whatever is opened says at which step it closes; the steps run in the order of the list below,
 * whenever and however often the end is asked for. One that fails is logged and does not keep the others open.
 */

import { type Clock, wait } from "../base/clock.ts";
import type { Logger } from "../observe/log/logger.ts";

/** From the first to the last: nothing is closed while something before it may still need it. */
export const END_STEPS = [
  /** No more reloads. */
  "watch",
  /** Backends tell their clients to leave. */
  "backends",
  /** No new requests; those in flight end, up to the drain limit. */
  "listeners",
  /** Children are asked, then told, then made to end. */
  "living",
  "outgoing",
  /** After everything that may still use it. */
  "store",
  "measuring",
  /** Last, so that an operator can watch all of this. */
  "admin",
] as const;
export type EndStep = (typeof END_STEPS)[number];

/** Longer than the grace that children get. */
const CLOSE_LIMIT_MS = 8_000;

type Close = (drainMs: number) => void | Promise<void>;

export interface Ending {
  readonly hasBegun: boolean;
  /** `close` gets the time that requests may still take. */
  at(step: EndStep, close: Close): void;
  /** Runs every step. Called again while it runs: what still waits ends at once. */
  end(drainMs: number): Promise<void>;
  /** Resolves at the end, whoever asked for it. */
  readonly ended: Promise<void>;
}

export function createEnding(clock: Clock, logger: Logger): Ending {
  const closing = new Map<EndStep, Close[]>(END_STEPS.map((step) => [step, []]));
  let hasBegun = false;
  let resolveEnded: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    resolveEnded = resolve;
  });

  async function run(step: EndStep, drainMs: number): Promise<void> {
    const closes = (closing.get(step) ?? []).map(async (close) => {
      try {
        await close(drainMs);
      } catch (error) {
        logger.warn("could not close", { what: step, error: String(error) });
      }
    });
    const all = Promise.all(closes);
    // Requests have the drain limit; foreign programs have this one.
    await (step === "living" ? Promise.race([all, wait(clock, CLOSE_LIMIT_MS)]) : all);
  }

  return {
    get hasBegun() {
      return hasBegun;
    },
    ended,
    at: (step, close) => void closing.get(step)?.push(close),
    async end(drainMs) {
      const limitMs = hasBegun ? 0 : drainMs;
      hasBegun = true;
      for (const step of END_STEPS) await run(step, limitMs);
      // One turn, so that the answer to /quitquitquit and the last log lines get out.
      await new Promise((resolve) => setImmediate(resolve));
      resolveEnded();
    },
  };
}
