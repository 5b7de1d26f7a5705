/**
 * Runs the attempts of a request: calls a target, and moves on to the next one if the attempt failed. A backend's own
 * targets are tried first, then the backends of the route. Each request that a backend sends to a server is recorded as
 * an attempt with its response or failure, and reported to the trace.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import { shortageCode } from "../../base/file-descriptors.ts";
import type { BackendProblem, BackendRun, PreparedCall, ResponseReceiver } from "../../core/backend.ts";
import { type ErrorCode, GatewayError } from "../../core/errors.ts";
import { Attempt, describeAttempt, type Exchange, type GatewayRequest, type ServedModel } from "../../core/exchange.ts";
import type { RetrySettings, Settings } from "../../core/policy.ts";
import { asGatewayError } from "../../core/reply.ts";
import { receivedState, requestState, sentState } from "../../core/snapshot.ts";
import type { AttemptFailure, Targets } from "../../core/targets.ts";
import type { WeightedBackend } from "../../core/topology.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type AttemptState, isOver } from "../../http/http-attempt.ts";
import { HttpClientError } from "../../http/http-client.ts";
import { bodyBytes, captureSentBody } from "../../record/recorded-bodies.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Trace } from "../../record/trace/trace.ts";
import type { Delivery } from "./delivery.ts";

export type CallDelivery = Pick<Delivery, "run" | "canReplace" | "isDone" | "head" | "data" | "end" | "breakOff">;

/** Receives the outcomes that end the attempts of a request. */
export interface AttemptOwner {
  readonly clock: Clock;
  readonly redaction: Redaction;
  /** Chooses a backend of the route, runs its policies, and calls it. */
  callNext(): void;
  fail(error: GatewayError): void;
  broke(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
  isUploading(): boolean;
}

/**
 * Without a retry policy, one retry is allowed if the backend had closed a reused connection, or if connecting failed
 * and the backend has other endpoints.
 */
const STALE_RETRY: RetrySettings = { attempts: 1, backoffMs: 0, codes: new Set() };

/** Lists the idempotent methods of RFC 9110 section 9.2.2, without TRACE, which the gateway rejects. */
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/**
 * Returns whether a request may be sent again. A streamed body that was taken cannot be. A request that is not
 * idempotent is repeated only if nothing was sent or the retry policy lists the response.
 */
function mayRepeat({ method, body }: GatewayRequest, error: GatewayError | undefined): boolean {
  if (body.kind === "stream" && body.taken) return false;
  return IDEMPOTENT.has(method) || error === undefined || isUnconnected(error);
}

/** Starts the attempts of a request with the backends of its route, and decides which of them are repeated. */
export class AttemptRunner {
  readonly #owner: AttemptOwner;
  readonly #exchange: Exchange;
  readonly #delivery: CallDelivery;
  #settings: Settings = {};
  #started = 0;
  #call: BackendCall | undefined = undefined;

  constructor(owner: AttemptOwner, exchange: Exchange, delivery: CallDelivery) {
    this.#owner = owner;
    this.#exchange = exchange;
    this.#delivery = delivery;
  }

  call({ backend, policies: { settings } }: WeightedBackend, prepared: PreparedCall): void {
    this.#settings = settings;
    this.#started += 1;
    this.#call = new BackendCall(this.#owner, this, this.#exchange, this.#delivery, settings, backend.defaultTimeoutMs);
    this.#call.start(prepared);
  }

  /** Works like `retry` for a response that the retry policy counts as a failure. Returns false for other responses. */
  retryResponse(status: number, headers: HeaderList): boolean {
    const { retry } = this.#settings;
    if (retry === undefined || this.#started > retry.attempts) return false;
    const isFailure = retry.codes.has(status) || retry.condition?.(this.#exchange, status, headers) === true;
    return isFailure && this.retry(`status ${status}`, undefined);
  }

  /**
   * Aborts the current attempt and starts another one. Returns false if the request may not be repeated. `error` is
   * undefined if the backend responded.
   */
  retry(reason: string, error: GatewayError | undefined): boolean {
    const { retry } = this.#settings;
    const { attempts, backoffMs } = retry ?? STALE_RETRY;
    if (this.#started > attempts || !this.#delivery.canReplace) return false;
    if (!mayRepeat(this.#exchange.request, error)) return false;
    const isWanted = retry !== undefined && retry.precondition?.(this.#exchange) !== false;
    if (!isWanted && (error === undefined || !this.#isUnsent(error))) return false;
    this.#call?.abort();
    reportRetry(this.#exchange, this.#owner, reason);
    const waitMs = backoffMs * 2 ** (this.#started - 1);
    if (waitMs === 0) this.#owner.callNext();
    else this.#owner.clock.after(waitMs, () => this.#owner.callNext());
    return true;
  }

  /** Returns true if no server has processed the request, and the next attempt can reach one. */
  #isUnsent(error: GatewayError): boolean {
    return isStale(error) || (this.#exchange.upstream.hasOtherEndpoints && isUnconnected(error));
  }
}

function isStale({ cause }: GatewayError): boolean {
  return cause instanceof HttpClientError && cause.kind === "stale";
}

/** Returns true if connecting failed, so that the server has received nothing. */
function isUnconnected({ cause }: GatewayError): boolean {
  return cause instanceof HttpClientError && (cause.kind === "connect" || cause.kind === "connect-timeout");
}

export function backendError(error: unknown): GatewayError {
  if (!(error instanceof HttpClientError)) return asGatewayError(error);
  const options = { detail: error.message, cause: error };
  switch (error.kind) {
    case "connect":
      // Too few file descriptors are left, which is no fault of the server.
      if (shortageCode(error.cause) !== undefined)
        return new GatewayError("overloaded", { ...options, headers: { "retry-after": "1" } });
      return new GatewayError("backend_unavailable", options);
    case "connect-timeout":
      return new GatewayError("backend_timeout", options);
    case "internal":
      return new GatewayError("internal", { cause: error.cause });
    case "request":
      return new GatewayError("bad_request", { ...options, message: "bad request: it cannot be forwarded" });
    default:
      return new GatewayError("backend_response_invalid", options);
  }
}

/** Error messages may quote a server's response, so their length is limited. */
const MAX_PROBLEM_CHARS = 500;

/**
 * Makes one call to a backend: enforces the order of its events, limits the wait for the response head, and passes the
 * response on to the delivery.
 */
export class BackendCall implements ResponseReceiver, BackendRun {
  readonly #owner: AttemptOwner;
  readonly #runner: AttemptRunner;
  readonly #exchange: Exchange;
  readonly #delivery: CallDelivery;
  readonly #settings: Settings;
  readonly #defaultTimeoutMs: number;
  /** The backend's own targets, once it has called one of them. */
  #targets: Targets | undefined;
  #openRequests = 0;
  #hasSent = false;
  #timer: Timer | undefined;
  #run: BackendRun | undefined;
  #state: AttemptState = "waiting";
  #said: ErrorCode | undefined = undefined;

  constructor(
    owner: AttemptOwner,
    runner: AttemptRunner,
    exchange: Exchange,
    delivery: CallDelivery,
    settings: Settings,
    defaultTimeoutMs: number,
  ) {
    this.#owner = owner;
    this.#runner = runner;
    this.#exchange = exchange;
    this.#delivery = delivery;
    this.#settings = settings;
    this.#defaultTimeoutMs = defaultTimeoutMs;
  }

  /** The prepared call is not kept: a response can be open for hours, and the call contains the client's messages. */
  start(prepared: PreparedCall): void {
    const { upstream, attempts } = this.#exchange;
    attempts.startCall();
    upstream.startedMs = this.#owner.clock.monotonicMs();
    upstream.headMs = undefined;
    upstream.isCalled = false;
    const { requestTimeoutMs, backendTimeoutMs } = this.#settings;
    // The default timeout does not apply while the client's body is still arriving.
    const isDefault = requestTimeoutMs === undefined && backendTimeoutMs === undefined;
    const isUploading = isDefault && this.#exchange.request.body.kind === "stream";
    const run = prepared.call(this);
    // A backend may respond during the call.
    if (isOver(this.#state)) {
      if (this.#state === "abandoned") run.abort();
      return;
    }
    this.#run = run;
    this.#delivery.run = this;
    // The client may have disconnected or received another response in the meantime.
    if (this.#delivery.isDone) this.abort();
    else if (this.#state === "waiting") this.#arm(isUploading);
  }

  /** Ends the attempt without notifying the owner. */
  abort(): void {
    if (isOver(this.#state)) return;
    this.#enter("abandoned");
    this.#timer?.cancel();
    this.#run?.abort();
  }

  resume(): void {
    if (!isOver(this.#state)) this.#run?.resume();
  }

  get isWatched(): boolean {
    return this.#exchange.isWatched;
  }

  requestSent(): void {
    if (isOver(this.#state)) return;
    if (!this.#hasSent) this.#exchange.upstream.startedMs = this.#owner.clock.monotonicMs();
    this.#hasSent = true;
    this.#exchange.upstream.isCalled = true;
    this.#openRequests += 1;
  }

  resultReceived(): void {
    if (isOver(this.#state)) return;
    this.#openRequests -= 1;
    this.#exchange.upstream.headMs = this.#owner.clock.monotonicMs();
  }

  attempt(target: string, sent?: Sent, served?: ServedModel, targets?: Targets): void {
    if (isOver(this.#state)) return;
    const isFirst = this.#targets === undefined;
    this.#targets = targets;
    // If the backend's call has returned, its wait did not allow for the other targets.
    if (isFirst && targets !== undefined && this.#run !== undefined && this.#state === "waiting") this.#arm(false);
    // The gateway's own answers, for example from its cache, are named `internal:cache`.
    if (!target.startsWith("internal:")) this.#exchange.upstream.isCalled = true;
    reportAttempt(this.#exchange, this.#owner, target, sent, served);
  }

  next<Failure extends AttemptFailure>(targets: Targets<Failure>, failure: Failure): boolean {
    if (this.#state !== "waiting") return false;
    this.#targets = targets;
    const callNext = targets.takeNext(failure);
    if (callNext === undefined) return false;
    reportRetry(this.#exchange, this.#owner, failure.reason);
    callNext();
    // Getting a credential for the next target counts against its timeout.
    if (this.#state === "waiting") this.#arm(false);
    return true;
  }

  received(status: number, headers: HeaderList, target?: string): void {
    if (!isOver(this.#state)) reportResponse(this.#exchange, this.#owner, status, headers, target);
  }

  missed(reason: string, target: string): void {
    if (!isOver(this.#state)) reportMiss(this.#exchange, this.#owner, reason, target);
  }

  head(status: number, headers: HeaderList): void {
    if (this.#state !== "waiting") return;
    try {
      const nowMs = this.#owner.clock.monotonicMs();
      reportHead(this.#exchange, this.#owner, status, headers, nowMs);
      if (this.#settings.retry !== undefined && this.#runner.retryResponse(status, headers)) return;
      if (!isOver(this.#state)) this.#enter("responding");
      this.#timer?.cancel();
      this.#exchange.upstream.headMs ??= nowMs;
      if (this.#exchange.attempts.areAwaited) this.#exchange.upstream.delaySnapshots();
      this.#delivery.head(status, headers, this.#said);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#state !== "responding") return true;
    try {
      return this.#delivery.data(chunk);
    } catch (thrown) {
      this.#threw(thrown);
      return true;
    }
  }

  end(trailers?: readonly string[]): void {
    if (this.#state !== "responding") return;
    this.#enter("ended");
    try {
      this.#delivery.end(trailers);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  problem({ code, source, reason, said }: BackendProblem): void {
    this.#said ??= said;
    if (this.#exchange.failure !== undefined) return;
    // A server may quote the client's request. The reason is truncated last, because redaction would not recognize
    // half of a secret.
    const shown = this.#owner.redaction.scrub(reason, this.#exchange.arrived.headers.pairs);
    this.#exchange.failure = { code, source, message: shown.slice(0, MAX_PROBLEM_CHARS), detail: undefined };
  }

  fail(error: unknown): void {
    const wasResponding = this.#state === "responding";
    if (isOver(this.#state)) return;
    this.#enter("failed");
    this.#timer?.cancel();
    try {
      this.#failed(error, wasResponding);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  #failed(error: unknown, wasResponding: boolean): void {
    const failure = backendError(error);
    if (failure.code === "internal" && wasResponding) {
      this.#owner.broke(failure);
      return;
    }
    // If the head is still held, an error response is possible.
    if (wasResponding && this.#delivery.canReplace) {
      this.#owner.fail(failure);
      return;
    }
    if (wasResponding) {
      this.#exchange.failure ??= {
        code: failure.code,
        source: failure.source,
        message: failure.message,
        detail: failure.detail,
      };
      this.#delivery.breakOff();
      return;
    }
    this.#lost(failure);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    if (!isOver(this.#state)) reportHead(this.#exchange, this.#owner, status, headers);
    if (this.#state !== "waiting") {
      socket.destroy();
      return;
    }
    this.#enter("ended");
    this.#timer?.cancel();
    try {
      this.#owner.upgraded(status, headers, socket);
    } catch (thrown) {
      socket.destroy();
      this.#threw(thrown);
    }
  }

  #arm(wasUploading: boolean): void {
    this.#timer?.cancel();
    const { clock } = this.#owner;
    const deadlineMs = requestDeadline(this.#settings, this.#exchange.startedMs);
    const spares = this.#targets?.left ?? 0;
    const limitMs = headLimitMs(this.#settings, this.#defaultTimeoutMs, deadlineMs, clock.monotonicMs(), spares);
    if (limitMs === UNLIMITED) return;
    this.#timer = clock.after(limitMs, () => {
      // The timeout restarts at the first check after the end of the upload.
      if (wasUploading) this.#arm(this.#owner.isUploading());
      else if (this.#state === "waiting")
        this.#expire(timeoutDetail(this.#settings, this.#defaultTimeoutMs, limitMs, spares), deadlineMs);
    });
  }

  #expire(detail: string, deadlineMs: number | undefined): void {
    try {
      this.#timedOut(detail, deadlineMs);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  #timedOut(detail: string, deadlineMs: number | undefined): void {
    const hasTime = deadlineMs === undefined || this.#owner.clock.monotonicMs() < deadlineMs;
    if (hasTime && this.#targets !== undefined && this.next(this.#targets, { reason: detail })) return;
    this.abort();
    this.#lost(new GatewayError("backend_timeout", { detail }));
  }

  /** The backend has not responded: starts another attempt, or fails the request. */
  #lost(error: GatewayError): void {
    const reason = error.detail ?? error.message;
    reportFailure(this.#exchange, this.#owner, reason);
    if (!this.#runner.retry(reason, error)) this.#owner.fail(error);
  }

  #enter(next: AttemptState): void {
    this.#state = next;
    // The servers have not responded, so their time ends with the attempt.
    if (this.#openRequests > 0 && isOver(next)) this.#exchange.upstream.headMs = this.#owner.clock.monotonicMs();
  }

  /** A defect of the gateway fails only this exchange. */
  #threw(thrown: unknown): void {
    this.abort();
    this.#owner.broke(thrown);
  }
}

type AttemptReportEnv = Pick<AttemptOwner, "clock" | "redaction">;

function reportAttempt(
  exchange: Exchange,
  { clock, redaction }: AttemptReportEnv,
  target: string,
  sent: Sent | undefined,
  served: ServedModel | undefined,
): void {
  const { attempts, trace } = exchange;
  const attempt = new Attempt(target, clock.monotonicMs(), served);
  attempt.isReported = sent !== undefined && (sent.over === "stdio" || sent.isReported === true);
  attempt.spanId = exchange.records.spans?.attemptSpanId();
  attempts.add(attempt, sent?.over === "stdio" ? sent.hasResult : attempt.isReported);
  if (trace !== undefined) traceSent(exchange, trace, redaction, target, sent);
}

function traceSent(
  exchange: Exchange,
  trace: Trace,
  redaction: Redaction,
  target: string,
  sent: Sent | undefined,
): void {
  const { headers, body } = exchange.request;
  const state = sent ? sentState(exchange, target, sent, redaction) : requestState(exchange, redaction);
  trace.point({ type: "requestSnapshot", stage: "final request", requestState: state });
  trace.point({ type: "backendCallStart", target });
  if (sent === undefined) captureSentBody(trace, bodyBytes(body), headers.get("content-type"));
  else if (sent.over === "stdio") captureSentBody(trace, Buffer.from(sent.line), "application/json");
  else captureSentBody(trace, sent.request.body, sent.request.headers.get("content-type"));
}

/** Reports a response head or an MCP result. Without `target`, it is that of the last attempt. */
function reportResponse(
  exchange: Exchange,
  env: AttemptReportEnv,
  status: number,
  headers: HeaderList,
  target?: string,
  nowMs = env.clock.monotonicMs(),
): void {
  const { attempts, trace, upstream } = exchange;
  const awaited = attempts.takeAwaited(target);
  const attempt = awaited ?? attempts.last;
  if (attempt !== undefined) attempt.status = status;
  reportResult(exchange, attempt, nowMs, target, undefined);
  if (trace !== undefined) {
    const times =
      awaited === undefined
        ? { startedMs: upstream.startedMs, headMs: upstream.headMs ?? nowMs }
        : { startedMs: awaited.startedMs, headMs: nowMs };
    const state = receivedState(exchange, status, headers, times, env.redaction, env.clock);
    trace.point({ type: "responseSnapshot", stage: "raw response", requestState: state });
  }
  releaseSnapshots(exchange);
}

/** Reports the head of the backend's response, unless the backend reports the responses of its servers itself. */
function reportHead(
  exchange: Exchange,
  env: AttemptReportEnv,
  status: number,
  headers: HeaderList,
  nowMs?: number,
): void {
  const { last } = exchange.attempts;
  if (last !== undefined && !last.hasResult && !last.isReported)
    reportResponse(exchange, env, status, headers, undefined, nowMs);
}

/** Reports that a target did not respond. */
function reportMiss(exchange: Exchange, env: AttemptReportEnv, reason: string, target: string): void {
  const { attempts } = exchange;
  const attempt = attempts.takeAwaited(target) ?? attempts.last;
  if (attempt !== undefined) reportResult(exchange, attempt, env.clock.monotonicMs(), target, reason);
  releaseSnapshots(exchange);
}

/** Reports the failure of the backend's call, which may not have reached a server. */
function reportFailure(exchange: Exchange, env: AttemptReportEnv, reason: string): void {
  reportResult(exchange, exchange.attempts.last, env.clock.monotonicMs(), undefined, reason);
}

/** Reports that another attempt replaces the last one. */
function reportRetry(exchange: Exchange, env: AttemptReportEnv, reason: string): void {
  const { attempts, trace } = exchange;
  const { last } = attempts;
  // A target that got no request, for example because its credential is missing, follows an attempt that was replaced before.
  if (last === undefined || last.retryReason !== undefined) return;
  if (!last.hasResult) reportResult(exchange, last, env.clock.monotonicMs(), undefined, reason);
  last.retryReason = reason;
  const kind = last.provider === undefined ? "retry" : "failover";
  trace?.point({ type: "policyEvent", kind, details: { ...describeAttempt(last) } }, "warn");
}

function reportResult(
  { trace, upstream }: Exchange,
  attempt: Attempt | undefined,
  nowMs: number,
  target: string | undefined,
  error: string | undefined,
): void {
  if (attempt !== undefined) {
    attempt.resultMs = nowMs;
    attempt.error = error;
  }
  if (trace === undefined) return;
  const status = error === undefined ? (attempt?.status ?? null) : null;
  const severity = error !== undefined || (status ?? 0) >= 500 ? "error" : (status ?? 0) >= 400 ? "warn" : "info";
  const whose = target === undefined ? {} : { target };
  const startedMs = attempt?.startedMs ?? upstream.startedMs ?? nowMs;
  trace.span(startedMs, { type: "backendCallResult", status, error: error ?? null, ...whose }, severity);
}

function releaseSnapshots({ attempts, upstream }: Exchange): void {
  if (!attempts.areAwaited) upstream.releaseSnapshots();
}

/** A timeout of `0s` means no limit, as in the Gateway API. */
const UNLIMITED = 0;

/** Returns the deadline of the whole request on the monotonic clock, or undefined if it has none. */
function requestDeadline({ requestTimeoutMs }: Settings, startedMs: number): number | undefined {
  return requestTimeoutMs === undefined || requestTimeoutMs === UNLIMITED ? undefined : startedMs + requestTimeoutMs;
}

/**
 * Returns the timeout for the response head of the current target, with `spares` more targets to try after it.
 * `backendRequestTimeout` applies to each target and `requestTimeout` to the whole request. Without either, the
 * backend's default applies to each target.
 */
function headLimitMs(
  settings: Settings,
  defaultMs: number,
  deadlineMs: number | undefined,
  nowMs: number,
  spares: number,
): number {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const perTargetMs = backendTimeoutMs ?? (requestTimeoutMs === undefined ? defaultMs : undefined);
  if (deadlineMs === undefined) return perTargetMs ?? UNLIMITED;
  const leftMs = Math.max(1, deadlineMs - nowMs);
  // If only the whole request has a timeout, the remaining targets share the remaining time.
  if (perTargetMs === undefined) return leftMs / (1 + spares);
  return perTargetMs === UNLIMITED ? leftMs : Math.min(perTargetMs, leftMs);
}

/** Describes an expired `headLimitMs` with the setting that an operator can change. */
export function timeoutDetail(settings: Settings, defaultMs: number, limitMs: number, spares: number): string {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const after = "no response headers within";
  if (backendTimeoutMs !== undefined && backendTimeoutMs === limitMs)
    return `${after} ${durationText(backendTimeoutMs)} (timeout.backendRequestTimeout)`;
  if (requestTimeoutMs === undefined)
    return `${after} ${durationText(defaultMs)} (the default of timeout.requestTimeout)`;
  const isShare = backendTimeoutMs === undefined && spares > 0;
  const share = isShare ? `${durationText(limitMs)}, a share of ` : "";
  return `${after} ${share}${durationText(requestTimeoutMs)} (timeout.requestTimeout)`;
}

function durationText(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`;
}
