/**
 * Compiles canary backends, which receive a share of a route's requests or the requests that match a condition. A
 * canary is withdrawn if too many of its requests fail or are slow.
 */
import { createHash } from "node:crypto";
import type { Duplex } from "node:stream";
import type { OwnedMemory } from "../../base/shared-memory.ts";
import type { Expression } from "../../cel/expression.ts";
import type { Backend, BackendEnv, BackendRun, Prepared, ResponseReceiver } from "../../core/backend.ts";
import { ResponseFilter } from "../../core/response-filter.ts";
import type { Canary } from "../../core/topology.ts";
import type { HeaderList } from "../../http/headers.ts";
import { HttpClientError } from "../../http/http-client.ts";
import type { CanaryConfig } from "../schema/schema.ts";

/** A larger share of slow requests means that the 95th percentile is above the limit. */
const SLOW_PERCENT = 5;
/** Without a latency limit, a call that is aborted after this time counts as failed. */
const HANGS_MS = 30_000;

export interface CompiledCanary extends Canary {
  watched(backend: Backend): Backend;
}

export function compileCanary(config: CanaryConfig, definition: unknown, env: BackendEnv): CompiledCanary {
  const { share, when, maxErrors, maxLatency, minRequests, window } = config;
  const { clock, name } = env;
  const condition: Expression | undefined = when === undefined ? undefined : env.cel(when);
  const memory = `canary ${name} ${createHash("sha256").update(JSON.stringify({ config, definition })).digest("hex")}`;
  // The trial survives a reload that does not change the canary.
  const trial = env.acquire(
    `canary ${name}`,
    { config, definition },
    () => new CanaryTrial(memory, clock.monotonicMs(), env.shared),
    () => env.shared?.release(memory),
  );
  const counter = env.metrics.counter("gateway_canary_requests_total", "Requests that went to a canary.", [
    "backend",
    "result",
  ]);
  const returns = env.metrics
    .counter("gateway_canary_withdrawn_total", "Times that a canary was withdrawn.", ["backend"])
    .labels(name);
  const logger = env.logger.for("backends");

  const isFailing = ({ requests, failed }: TrialCounts): boolean => failed * 100 > maxErrors * requests;
  const isBad = (counts: TrialCounts): boolean =>
    counts.requests >= minRequests && (isFailing(counts) || counts.slow * 100 > SLOW_PERCENT * counts.requests);
  const reasonOf = (counts: TrialCounts): string =>
    isFailing(counts)
      ? `${counts.failed} of ${counts.requests} requests failed`
      : `${counts.slow} of ${counts.requests} requests took longer than ${maxLatency} ms`;

  function count(hasFailed: boolean, tookMs: number): void {
    counter.labels(name, hasFailed ? "failed" : "ok").add();
    const result = { hasFailed, isSlow: maxLatency !== undefined && tookMs > maxLatency };
    const times = { nowMs: clock.monotonicMs(), wallMs: clock.now(), windowMs: window };
    if (!trial.count(result, times, isBad)) return;
    returns.add();
    const reason = reasonOf(trial.withdrawal ?? trial.counts);
    logger.warn("canary withdrawn; the route's other backends serve all requests again", { backend: name, reason });
  }

  function watchedCall(prepared: Prepared): Prepared {
    if ("status" in prepared) return prepared;
    return {
      ...prepared,
      call(receiver) {
        const startedMs = clock.monotonicMs();
        const watched = new WatchedAttempt(receiver, (hasFailed) => count(hasFailed, clock.monotonicMs() - startedMs));
        const run = prepared.call(watched);
        return watched.holding(run, () => clock.monotonicMs() - startedMs >= (maxLatency ?? HANGS_MS));
      },
    };
  }

  return {
    takes(exchange, random) {
      if (trial.isWithdrawn) return false;
      if (condition === undefined) return random() >= 1 - (share ?? 0) / 100;
      const result = condition.evaluate(exchange.celAttributes);
      return result.ok && result.value === true;
    },
    watched: (backend) => ({
      ...backend,
      prepare(exchange, needs) {
        const prepared = backend.prepare(exchange, needs);
        return prepared instanceof Promise ? prepared.then(watchedCall) : watchedCall(prepared);
      },
      describe() {
        const { withdrawal, counts } = trial;
        const chosen = share === undefined ? { when } : { share };
        const state =
          withdrawal === undefined
            ? { state: "active" }
            : { state: "withdrawn", at: new Date(withdrawal.at).toISOString(), reason: reasonOf(withdrawal) };
        return { ...backend.describe(), canary: { ...chosen, ...state, ...counts } };
      },
    }),
  };
}

class WatchedAttempt extends ResponseFilter {
  readonly #report: (hasFailed: boolean) => void;
  #isReported = false;

  constructor(call: ResponseReceiver, report: (hasFailed: boolean) => void) {
    super(call);
    this.#report = report;
  }

  holding(run: BackendRun, hangs: () => boolean): BackendRun {
    return {
      abort: () => {
        if (hangs()) this.#reportOnce(true);
        run.abort();
      },
      resume: () => run.resume(),
    };
  }

  head(status: number, headers: HeaderList): void {
    this.#reportOnce(status >= 500);
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.call.end(trailers);
  }

  fail(error: unknown): void {
    // A stale keep-alive connection does not count as a failure.
    if (!(error instanceof HttpClientError && error.kind === "stale")) this.#reportOnce(true);
    this.call.fail(error);
  }

  override upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.#reportOnce(false);
    this.call.upgraded(status, headers, socket);
  }

  #reportOnce(hasFailed: boolean): void {
    if (this.#isReported) return;
    this.#isReported = true;
    this.#report(hasFailed);
  }
}

/** These are indexes of 8-byte numbers in the shared memory. */
const START_MS = 0;
const REQUESTS = 1;
const FAILED = 2;
const SLOW = 3;
/** The value is 0 while the canary is active. The counts at withdrawal follow it. */
const WITHDRAWN_AT = 4;
const AT_REQUESTS = 5;
const AT_FAILED = 6;
const AT_SLOW = 7;
const NUMBERS = 8;
const BYTES = NUMBERS * 8 + 8;

const UNLOCKED = 0;
const SPINS_BEFORE_NAP = 2_000;
const NAP_MS = 1;

export interface TrialCounts {
  readonly requests: number;
  readonly failed: number;
  readonly slow: number;
}

export interface Withdrawal extends TrialCounts {
  /** The time is in milliseconds since 1970. */
  readonly at: number;
}

export interface TrialTimes {
  readonly nowMs: number;
  readonly wallMs: number;
  readonly windowMs: number;
}

export class CanaryTrial {
  readonly #numbers: Float64Array;
  readonly #lock: Int32Array | undefined;
  readonly #thread: number;

  /** `name` must differ for each definition. */
  constructor(name: string, nowMs: number, shared?: OwnedMemory) {
    this.#thread = shared?.thread ?? 0;
    const memory = shared?.claim(name, BYTES) ?? { buffer: new ArrayBuffer(BYTES), isNew: true };
    this.#numbers = new Float64Array(memory.buffer, 0, NUMBERS);
    if (memory.isNew) this.#numbers[START_MS] = nowMs;
    if (shared === undefined) return;
    const lock = new Int32Array(memory.buffer, NUMBERS * 8, 1);
    this.#lock = lock;
    shared.onDeath(name, (thread) => void Atomics.compareExchange(lock, 0, thread, UNLOCKED));
  }

  get counts(): TrialCounts {
    const numbers = this.#numbers;
    return {
      requests: numbers[REQUESTS] as number,
      failed: numbers[FAILED] as number,
      slow: numbers[SLOW] as number,
    };
  }

  get isWithdrawn(): boolean {
    return this.#numbers[WITHDRAWN_AT] !== 0;
  }

  get withdrawal(): Withdrawal | undefined {
    const numbers = this.#numbers;
    const at = numbers[WITHDRAWN_AT] as number;
    if (at === 0) return undefined;
    const [requests, failed, slow] = [AT_REQUESTS, AT_FAILED, AT_SLOW].map((index) => numbers[index] as number);
    return { at, requests: requests ?? 0, failed: failed ?? 0, slow: slow ?? 0 };
  }

  /** Returns true if this request causes the withdrawal, once across all threads. */
  count(
    result: { readonly hasFailed: boolean; readonly isSlow: boolean },
    { nowMs, wallMs, windowMs }: TrialTimes,
    isBad: (counts: TrialCounts) => boolean,
  ): boolean {
    this.#acquire();
    try {
      const numbers = this.#numbers;
      if (nowMs - (numbers[START_MS] as number) >= windowMs) numbers.fill(0, REQUESTS, WITHDRAWN_AT)[START_MS] = nowMs;
      numbers[REQUESTS] = (numbers[REQUESTS] as number) + 1;
      if (result.hasFailed) numbers[FAILED] = (numbers[FAILED] as number) + 1;
      if (result.isSlow) numbers[SLOW] = (numbers[SLOW] as number) + 1;
      const { counts } = this;
      if (this.isWithdrawn || !isBad(counts)) return false;
      numbers[AT_REQUESTS] = counts.requests;
      numbers[AT_FAILED] = counts.failed;
      numbers[AT_SLOW] = counts.slow;
      numbers[WITHDRAWN_AT] = wallMs;
      return true;
    } finally {
      if (this.#lock) Atomics.store(this.#lock, 0, UNLOCKED);
    }
  }

  #acquire(): void {
    const lock = this.#lock;
    if (lock === undefined) return;
    for (let spins = 0; ; spins++) {
      const holder = Atomics.compareExchange(lock, 0, UNLOCKED, this.#thread);
      if (holder === UNLOCKED) return;
      if (spins >= SPINS_BEFORE_NAP) Atomics.wait(lock, 0, holder, NAP_MS);
    }
  }
}
