/**
 * The last failure of a server: its reason and stderr tail outlive the connection and the session, for the admin
 * interface, the UI, and `gwctl`. Secrets are redacted where these texts are created.
 */
import type { Clock } from "../../base/clock.ts";

/** A reason may quote a whole line of the server's output. */
const MAX_REASON_CHARS = 500;

export interface LastFailure {
  /** Completes "target x …". */
  readonly reason: string;
  readonly stderr: readonly string[];
  readonly agoMs: number;
  /** Number of failures since the gateway started. */
  readonly times: number;
  /** Whether the server has been up since. */
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

  /** Marks the failure as over after a successful handshake. */
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
