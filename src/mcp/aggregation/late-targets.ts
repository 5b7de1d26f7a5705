/**
 * Opening several targets where one may be slow (`failOpen`): after a few seconds the session goes on with those that
 * are there, and whoever comes later is announced. Until then its lists are left out; only calls to it wait for it.
 */

import type { Clock } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Running } from "../protocol/call.ts";
import type { OpenOutcome, Upstream } from "../server-side/upstream.ts";

/** People wait for `initialize`; most servers that are on this machine or near are up by then. */
export const OPEN_WAIT_MS = 3_000;

export const STILL_STARTING = "is still starting";

export interface LateTargetsEnv {
  readonly clock: Clock;
  /** Whether the session may go on without a target. */
  mayGoOn(): boolean;
  /** A target came up after the session had gone on without it. */
  arrived(upstream: Upstream): void;
}

export class LateTargets {
  readonly #env: LateTargetsEnv;
  /** Those that the session went on without, until they are up or have failed. */
  readonly #missing = new Set<Upstream>();
  /** Calls to them. */
  readonly #waiting = new Map<Upstream, Set<() => void>>();

  constructor(env: LateTargetsEnv) {
    this.#env = env;
  }

  get size(): number {
    return this.#missing.size;
  }

  has(upstream: Upstream): boolean {
    return this.#missing.has(upstream);
  }

  /** Opens all. `done` gets the outcomes of those that were there in time: of all, or of one that succeeded at least. */
  open(
    upstreams: readonly Upstream[],
    done: (outcomes: ReadonlyMap<Upstream, OpenOutcome>) => void,
    wire: WireTap | undefined,
  ): void {
    const outcomes = new Map<Upstream, OpenOutcome>();
    let isLate = false;
    let isDone = false;
    const goOn = (): void => {
      const isWhole = outcomes.size === upstreams.length;
      const isEnough = isLate && this.#env.mayGoOn() && [...outcomes.values()].some(({ ok }) => ok);
      if (isDone || (!isWhole && !isEnough)) return;
      isDone = true;
      timer.cancel();
      for (const upstream of upstreams) if (!outcomes.has(upstream)) this.#missing.add(upstream);
      done(outcomes);
    };
    const timer = this.#env.clock.after(OPEN_WAIT_MS, () => {
      isLate = true;
      goOn();
    });
    for (const upstream of upstreams) {
      upstream.open((outcome) => {
        outcomes.set(upstream, outcome);
        if (!isDone) goOn();
        else if (this.#missing.delete(upstream)) {
          if (outcome.ok) this.#env.arrived(upstream);
          this.#settled(upstream);
        }
      }, wire);
    }
  }

  /** `run` is called when the target is up or has failed. */
  wait(upstream: Upstream, run: () => Running): Running {
    let running: Running | undefined;
    const go = (): void => {
      running = run();
    };
    const calls = this.#waiting.get(upstream) ?? new Set();
    calls.add(go);
    this.#waiting.set(upstream, calls);
    return {
      cancel: (reason) => {
        calls.delete(go);
        running?.cancel(reason);
      },
    };
  }

  /** The session has left these. */
  forget(upstreams: readonly Upstream[]): void {
    for (const upstream of upstreams) if (this.#missing.delete(upstream)) this.#settled(upstream);
  }

  #settled(upstream: Upstream): void {
    const calls = this.#waiting.get(upstream);
    this.#waiting.delete(upstream);
    for (const go of calls ?? []) go();
  }
}
