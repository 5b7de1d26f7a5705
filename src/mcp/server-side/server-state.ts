/**
 * Why a server was lost the last time, or could not be brought up: the reason and the last lines of its stderr outlive
 * the connection and the session, so that whoever looks afterwards finds them. Secrets were taken out where these
 * texts were made.
 */
import type { Clock } from "../../base/clock.ts";

/** A reason may quote a whole line of a server. */
const MAX_REASON_CHARS = 500;

export interface LastFailure {
  /** Completes "target x …". */
  readonly reason: string;
  readonly stderr: readonly string[];
  readonly agoMs: number;
  /** How often, since the start. */
  readonly times: number;
  /** It has answered since. */
  readonly isOver: boolean;
}

export class ServerFailures {
  readonly #clock: Clock;
  #reason = "";
  #stderr: readonly string[] = [];
  #atMs = 0;
  #times = 0;
  #isOver = true;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(reason: string, stderr: readonly string[]): void {
    this.#reason = reason.slice(0, MAX_REASON_CHARS);
    this.#stderr = stderr;
    this.#atMs = this.#clock.monotonicMs();
    this.#times += 1;
    this.#isOver = false;
  }

  /** A server of this target is up. */
  over(): void {
    this.#isOver = true;
  }

  last(): LastFailure | undefined {
    if (this.#times === 0) return undefined;
    return {
      reason: this.#reason,
      stderr: this.#stderr,
      agoMs: Math.round(this.#clock.monotonicMs() - this.#atMs),
      times: this.#times,
      isOver: this.#isOver,
    };
  }
}
