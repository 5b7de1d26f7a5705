/**
 * A backend on trial: it gets a share of a route's requests, or those that a condition chooses, and is withdrawn for good
 * when too many of them fail or are slow; the others then serve everything again. Only a changed configuration or a restart
 * brings it back: what failed once should not try again by itself.
 */
import { createHash } from "node:crypto";
import type { Duplex } from "node:stream";
import type { Expression } from "../../cel/expression.ts";
import type { Backend, BackendCall, BackendEnv, BackendProblem, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Canary } from "../../core/topology.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { HttpClientError } from "../../http/http-client.ts";
import type { CanaryConfig } from "../schema/canary-schema.ts";
import { CanaryTrial, type TrialCounts } from "./canary-trial.ts";

/** More of them than this make the 95th percentile slow. */
const SLOW_PERCENT = 5;
/** A call that is given up after so long, without a bound for latency, has failed: the client did not just leave. */
const HANGS_MS = 30_000;

export interface CompiledCanary extends Canary {
  /** The backend with its calls counted and its trial in the dump. */
  watched(backend: Backend): Backend;
}

export function compileCanary(config: CanaryConfig, definition: unknown, env: BackendEnv): CompiledCanary {
  const { share, when, maxErrors, maxLatency, minRequests, window } = config;
  const { clock, name } = env;
  const condition: Expression | undefined = when === undefined ? undefined : env.cel(when);
  const memory = `canary ${name} ${createHash("sha256").update(JSON.stringify({ config, definition })).digest("hex")}`;
  // A reload that does not change it hands its trial over.
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

  return {
    takes(exchange, random) {
      if (trial.isWithdrawn) return false;
      if (condition === undefined) return random() >= 1 - (share ?? 0) / 100;
      const result = condition.evaluate(exchange.attributes);
      return result.ok && result.value === true;
    },
    watched: (backend) => ({
      ...backend,
      call(exchange: Exchange, call: BackendCall) {
        const startedMs = clock.monotonicMs();
        const watched = new WatchedAttempt(call, (hasFailed) => count(hasFailed, clock.monotonicMs() - startedMs));
        const run = backend.call(exchange, watched);
        return watched.holding(run, () => clock.monotonicMs() - startedMs >= (maxLatency ?? HANGS_MS));
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

/** Passes everything on, and tells once how the attempt went. */
class WatchedAttempt implements BackendCall {
  readonly #call: BackendCall;
  readonly #told: (hasFailed: boolean) => void;
  #isTold = false;

  constructor(call: BackendCall, told: (hasFailed: boolean) => void) {
    this.#call = call;
    this.#told = told;
  }

  holding(run: BackendRun, hangs: () => boolean): BackendRun {
    return {
      abort: () => {
        if (hangs()) this.#tell(true);
        run.abort();
      },
      resume: () => run.resume(),
    };
  }

  attempt(target: string, sent?: Sent): void {
    this.#call.attempt(target, sent);
  }

  received(status: number, headers: HeaderList): void {
    this.#call.received(status, headers);
  }

  missed(reason: string): void {
    this.#call.missed(reason);
  }

  head(status: number, headers: HeaderList): void {
    this.#tell(status >= 500);
    this.#call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.#call.end(trailers);
  }

  problem(problem: BackendProblem): void {
    this.#call.problem(problem);
  }

  fail(error: unknown): void {
    // A kept connection that was closed meanwhile is no failure of the new version: the request is sent again.
    if (!(error instanceof HttpClientError && error.kind === "stale")) this.#tell(true);
    this.#call.fail(error);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.#tell(false);
    this.#call.upgraded(status, headers, socket);
  }

  #tell(hasFailed: boolean): void {
    if (this.#isTold) return;
    this.#isTold = true;
    this.#told(hasFailed);
  }
}
