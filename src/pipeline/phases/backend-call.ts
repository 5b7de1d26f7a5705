/**
 * Makes one call to a backend: enforces the order of its events, limits the wait for the response head, and passes the
 * response on to the delivery. Each request that the backend sends to a server is recorded as an attempt with its
 * response or failure, and reported to the trace.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import { shortageCode } from "../../base/file-descriptors.ts";
import type { BackendProblem, BackendRun, PreparedCall, ResponseReceiver } from "../../core/backend.ts";
import { type ErrorCode, GatewayError } from "../../core/errors.ts";
import { Attempt, describeAttempt, type Exchange, type ServedModel } from "../../core/exchange.ts";
import type { Settings } from "../../core/policy.ts";
import { asGatewayError } from "../../core/reply.ts";
import { receivedState, requestState, sentState } from "../../core/snapshot.ts";
import type { AttemptFailure, Targets } from "../../core/targets.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type AttemptEvent, type AttemptState, afterEvent, isOver } from "../../http/http-attempt.ts";
import { HttpClientError } from "../../http/http-client.ts";
import { bodyBytes, captureSentBody } from "../../record/recorded-bodies.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Trace } from "../../record/trace/trace.ts";
import type { Delivery } from "./delivery.ts";

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

export type CallDelivery = Pick<Delivery, "run" | "canReplace" | "isDone" | "head" | "data" | "end" | "breakOff">;

export interface CallOwner {
  readonly clock: Clock;
  readonly redaction: Redaction;
  readonly exchange: Exchange;
  readonly delivery: CallDelivery;
  /** Includes the settings of the gateway and the route. */
  readonly settings: Settings;
  /** Aborts this call and starts another one if the response counts as a failure. Otherwise, returns false. */
  retryResponse(status: number, headers: HeaderList): boolean;
  next<Failure extends AttemptFailure>(targets: Targets<Failure>, failure: Failure): boolean;
  /** Starts another call, or fails the request. */
  failed(error: GatewayError): void;
  /** Fails the request. */
  fail(error: GatewayError): void;
  broke(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
  isUploading(): boolean;
}

export class BackendCall implements ResponseReceiver, BackendRun {
  readonly #owner: CallOwner;
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

  constructor(owner: CallOwner, defaultTimeoutMs: number) {
    this.#owner = owner;
    this.#exchange = owner.exchange;
    this.#delivery = owner.delivery;
    this.#settings = owner.settings;
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
    if (!this.#transition("abort")) return;
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
    if (!this.#owner.next(targets, failure)) return false;
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
      if (this.#owner.retryResponse(status, headers)) return;
      this.#transition("head");
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
    if (!this.#transition("end")) return;
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
    if (!this.#transition("error")) return;
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
    reportFailure(this.#exchange, this.#owner, failure.detail ?? failure.message);
    this.#owner.failed(failure);
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    if (!isOver(this.#state)) reportHead(this.#exchange, this.#owner, status, headers);
    if (!this.#transition("upgrade")) {
      socket.destroy();
      return;
    }
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
    reportFailure(this.#exchange, this.#owner, detail);
    this.#owner.failed(new GatewayError("backend_timeout", { detail }));
  }

  #transition(event: AttemptEvent): boolean {
    const next = afterEvent(this.#state, event);
    if (next === undefined) return false;
    this.#state = next;
    // The servers have not responded, so their time ends with the attempt.
    if (this.#openRequests > 0 && isOver(next)) this.#exchange.upstream.headMs = this.#owner.clock.monotonicMs();
    return true;
  }

  /** A defect of the gateway fails only this exchange. */
  #threw(thrown: unknown): void {
    this.abort();
    this.#owner.broke(thrown);
  }
}

interface AttemptReportEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
}

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
export function reportRetry(exchange: Exchange, env: AttemptReportEnv, reason: string): void {
  const { attempts, trace } = exchange;
  const { last } = attempts;
  // A target that got no request, for example for want of a credential, follows an attempt that was replaced before.
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
