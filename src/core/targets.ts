/**
 * Defines the targets of a request: the servers that can serve it, in the order to try them. Each call of a target is
 * an attempt. A route's targets are its backends, and a backend may have targets of its own, such as LLM providers.
 * The attempt runner of the pipeline moves from one target to the next.
 */
export interface AttemptFailure {
  /** Explains in logs and records why another attempt follows. */
  readonly reason: string;
}

export interface Targets<Failure extends AttemptFailure = AttemptFailure> {
  /** Limits from above how many targets can still be called. They share the time of the request. */
  readonly left: number;
  /**
   * Ends the failed attempt without a result for the client, and returns the call of the next target. Returns undefined,
   * and ends nothing, if no target can follow.
   */
  takeNext(failure: Failure): (() => void) | undefined;
}
