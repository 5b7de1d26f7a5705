/**
 * A backend on trial: it gets a share of a route's requests, or those that a condition chooses, and is withdrawn for good
 * when too many of them fail or are slow; the others then serve everything again. Only a changed configuration or a restart
 * brings it back: what failed once should not try again by itself.
 */
import type { Duplex } from "node:stream";
import type { Expression } from "../../cel/expression.ts";
import type { Backend, BackendCall, BackendEnv, BackendProblem, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Canary } from "../../core/topology.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import { HttpClientError } from "../../lib/http/http-client.ts";
import type { CanaryConfig } from "../schema/canary-schema.ts";

/** More of them than this make the 95th percentile slow. */
const SLOW_PERCENT = 5;
/** A call that is given up after so long, without a bound for latency, has failed: the client did not just leave. */
const HANGS_MS = 30_000;

/** What a reload that does not change it hands over. */
interface Trial {
  windowStartMs: number;
  requests: number;
  failed: number;
  slow: number;
  withdrawn: { readonly at: string; readonly reason: string } | undefined;
}

export interface CompiledCanary extends Canary {
  /** The backend with its calls counted and its trial in the dump. */
  watched(backend: Backend): Backend;
}

export function compileCanary(config: CanaryConfig, definition: unknown, env: BackendEnv): CompiledCanary {
  const { share, when, maxErrors, maxLatency, minRequests, window } = config;
  const { clock, name } = env;
  const condition: Expression | undefined = when === undefined ? undefined : env.cel(when);
  const trial = env.keep<Trial>(`canary ${name}`, { config, definition }, () => ({
    windowStartMs: clock.monotonicMs(),
    requests: 0,
    failed: 0,
    slow: 0,
    withdrawn: undefined,
  }));
  const counter = env.metrics.counter("gateway_canary_requests_total", "Requests that went to a canary.", [
    "backend",
    "result",
  ]);
  const returns = env.metrics
    .counter("gateway_canary_withdrawn_total", "Times that a canary was withdrawn.", ["backend"])
    .labels(name);
  const logger = env.logger.for("backends");

  function count(hasFailed: boolean, tookMs: number): void {
    const nowMs = clock.monotonicMs();
    if (nowMs - trial.windowStartMs >= window)
      Object.assign(trial, { windowStartMs: nowMs, requests: 0, failed: 0, slow: 0 });
    trial.requests += 1;
    if (hasFailed) trial.failed += 1;
    if (maxLatency !== undefined && tookMs > maxLatency) trial.slow += 1;
    counter.labels(name, hasFailed ? "failed" : "ok").add();
    if (trial.withdrawn !== undefined || trial.requests < minRequests) return;
    const { requests, failed, slow } = trial;
    if (failed * 100 > maxErrors * requests) withdraw(`${failed} of ${requests} requests failed`);
    else if (slow * 100 > SLOW_PERCENT * requests)
      withdraw(`${slow} of ${requests} requests took longer than ${maxLatency} ms`);
  }

  function withdraw(reason: string): void {
    trial.withdrawn = { at: new Date(clock.now()).toISOString(), reason };
    returns.add();
    logger.warn("canary withdrawn; the route's other backends serve all requests again", { backend: name, reason });
  }

  return {
    takes(exchange, random) {
      if (trial.withdrawn !== undefined) return false;
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
        const { requests, failed, slow, withdrawn } = trial;
        const chosen = share === undefined ? { when } : { share };
        const state = withdrawn === undefined ? { state: "active" } : { state: "withdrawn", ...withdrawn };
        return { ...backend.describe(), canary: { ...chosen, ...state, requests, failed, slow } };
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
