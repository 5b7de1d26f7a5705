/**
 * Records the attempts of one request: every call of a server, its result, and why another attempt followed. Traces,
 * spans, the access log, and recent requests take their values from here.
 */

import type { RecordedAttempt } from "../record/trace/record.ts";

/** An MCP backend may call many servers for one request. Beyond this number, attempts are only counted. */
const MAX_RECORDED = 64;
const NONE: readonly Attempt[] = [];

export class Attempt {
  /** The address of the server, or a name such as `stdio:files` or `internal:cache`. */
  readonly target: string;
  /** The LLM provider and the model that it was asked for. */
  readonly provider: string | undefined;
  readonly model: string | undefined;
  /** Times are monotonic. */
  readonly startedMs: number;
  /** When the response head, the MCP result, or the failure arrived. */
  resultMs: number | undefined = undefined;
  status: number | undefined = undefined;
  error: string | undefined = undefined;
  /** Explains why another attempt replaced this one. */
  retryReason: string | undefined = undefined;
  /** Only attempts of a sampled request have a span. */
  spanId: string | undefined = undefined;
  /** True if the backend reports the response itself, because the client receives a different head. */
  isReported = false;

  constructor(target: string, startedMs: number, served: ServedModel | undefined) {
    this.target = target;
    this.startedMs = startedMs;
    this.provider = served?.provider;
    this.model = served?.model;
  }

  get hasResult(): boolean {
    return this.resultMs !== undefined;
  }
}

export interface ServedModel {
  readonly provider: string;
  readonly model: string | undefined;
}

export class Attempts {
  #list: Attempt[] | undefined = undefined;
  leftOut = 0;
  /** The last attempt of the current call of a backend. */
  last: Attempt | undefined = undefined;
  /** The attempts of the current call whose results the backend reports, until it reports them. */
  #awaited: Attempt[] | undefined = undefined;

  add(attempt: Attempt, isAwaited: boolean): void {
    this.last = attempt;
    if (isAwaited) {
      this.#awaited ??= [];
      this.#awaited.push(attempt);
    }
    // An array for one element is much smaller than one that grew.
    if (this.#list === undefined) this.#list = [attempt];
    else if (this.#list.length < MAX_RECORDED) this.#list.push(attempt);
    else this.leftOut += 1;
  }

  /** The oldest attempt is first. */
  get list(): readonly Attempt[] {
    return this.#list ?? NONE;
  }

  get areAwaited(): boolean {
    return this.#awaited !== undefined && this.#awaited.length > 0;
  }

  /** Returns the oldest awaited attempt for this target, which is no longer awaited then. */
  takeAwaited(target: string | undefined): Attempt | undefined {
    const at = this.#awaited?.findIndex((one) => one.target === target) ?? -1;
    return at < 0 ? undefined : this.#awaited?.splice(at, 1)[0];
  }

  /** Starts the next call of a backend. Results of earlier calls are not reported. */
  startCall(): void {
    this.last = undefined;
    this.#awaited = undefined;
  }
}

export function describeAttempt(attempt: Attempt): RecordedAttempt {
  const { target, provider, model, status, error, startedMs, resultMs, retryReason } = attempt;
  return {
    target,
    ...(provider === undefined ? {} : { provider }),
    ...(model === undefined ? {} : { model }),
    status: status ?? null,
    ...(error === undefined ? {} : { error }),
    durationMs: resultMs === undefined ? null : Math.round((resultMs - startedMs) * 1000) / 1000,
    ...(retryReason === undefined ? {} : { retryReason }),
  };
}
