/**
 * Defines the targets of a request: the servers that can serve it, in the order to try them. Each call of a target is
 * an attempt. A route's targets are its backends, and a backend may have targets of its own, such as LLM providers.
 */
export interface AttemptFailure {
  /** Explains in logs and records why another attempt follows. */
  readonly reason: string;
}

export interface Targets<Failure extends AttemptFailure> {
  /** The wait before the next target is called. */
  readonly backoffMs: number;
  hasNext(failure: Failure): boolean;
  /** Ends the failed attempt, without a result for the client. */
  leave(failure: Failure): void;
  callNext(): void;
}
