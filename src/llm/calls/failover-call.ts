/**
 * Runs one LLM call with failover over the targets that can serve it, until a response is committed to the client.
 * Redirects are never followed, because a provider key must not be sent to an address from a response.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { runInSlices, SLICED_BYTES } from "../../base/sliced-work.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { type AttemptEvent, type AttemptState, afterEvent, isOver } from "../../http/http-attempt.ts";
import { type HttpCall, HttpClientError, type OutgoingRequest } from "../../http/http-client.ts";
import { CredentialError } from "../../identity/cloud/renewable.ts";
import type { Members } from "../../json/json.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { invalidateCredential, MISSING_AWS_KEYS } from "../credentials/credential.ts";
import type { FailoverRules } from "../models/failover-rules.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Target, TargetTimeouts } from "../models/target.ts";
import type { Dialect, Format } from "../request/dialect.ts";
import type { LlmCall } from "../request/llm-call.ts";
import {
  errorBody,
  errorHeaders,
  isContextLengthError,
  isStreamOptionsError,
  type LlmError,
  mayNameField,
} from "../request/llm-errors.ts";
import { providerRequestId, retryAfterSeconds } from "../request/provider.ts";
import { estimateRequestTokens, estimateSteps } from "../usage/estimate-tokens.ts";
import type { LlmMetrics } from "../usage/llm-metrics.ts";
import { NativeResponse, type ProviderResponse, TranslatedResponse } from "./provider-response.ts";
import { LlmRejection } from "./rejections.ts";
import { PROMPT_ONLY, type Settlement } from "./settlement.ts";
import { type SplitCallHandler, sendSplitRequest } from "./split-request.ts";
import { type PlanOptions, planRequest, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

/** Longer error bodies are not inspected. */
const MAX_ERROR_BYTES = 64 * 1024;

export interface FailoverOptions extends PlanOptions {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly rules: FailoverRules;
}

interface Attempt {
  readonly candidate: Candidate;
  readonly plan: UpstreamPlan;
  http: HttpCall | undefined;
  timer: ResponseTimer | undefined;
  held: HeldHead | undefined;
  response: ProviderResponse | undefined;
}

interface HeldHead {
  readonly status: number;
  readonly headers: HeaderList;
  /** Holds the body of an error that may cause another call. Undefined if the call only waits for the first byte. */
  readonly error: Buffer[] | undefined;
  /** True if the server may have rejected `stream_options`. */
  readonly isOptionsCheck: boolean;
  errorBytes: number;
}

interface TargetFailure {
  readonly reason: string;
  /** The cause is a metric label, so it is a status code or a fixed word. */
  readonly cause: string;
  readonly retryAfterSeconds?: number | undefined;
  /** If true, the failure is recorded in the target's health. */
  readonly ejects: boolean;
}

export class FailoverCall implements BackendRun, SplitCallHandler {
  readonly #options: FailoverOptions;
  readonly #exchange: Exchange;
  readonly #receiver: ResponseReceiver;
  readonly #llm: LlmCall;
  readonly #targets: TargetQueue;
  readonly #settlement: Settlement;
  #attempt: Attempt | undefined = undefined;
  #state: AttemptState = "waiting";

  constructor(
    options: FailoverOptions,
    exchange: Exchange,
    receiver: ResponseReceiver,
    llm: LlmCall,
    candidates: readonly Candidate[],
    settlement: Settlement,
  ) {
    this.#options = options;
    this.#exchange = exchange;
    this.#receiver = receiver;
    this.#llm = llm;
    this.#targets = new TargetQueue(llm, exchange, candidates, options);
    this.#settlement = settlement;
  }

  start(): void {
    if (isOver(this.#state)) return;
    try {
      const next = this.#targets.take();
      if (next === undefined) {
        this.#rejectUnserved();
        return;
      }
      const { candidate, plan } = next;
      const attributes = this.#exchange.attributes.llm;
      if (attributes) attributes.provider = candidate.target.provider.name;
      this.#settlement.calling(candidate.model);
      if (plan === undefined) this.#estimateTokenCount(this.#llm.bytes);
      else this.#sign(candidate, plan);
    } catch (error) {
      this.#fail(error);
    }
  }

  abort(): void {
    if (!this.#transition("abort")) return;
    const attempt = this.#attempt;
    this.#cancel();
    if (attempt?.response) attempt.response.abort();
    // Aborting a split request has already reported its spending.
    else if (attempt === undefined || attempt.held?.error || attempt.plan.more.length > 0)
      this.#settlement.unused("aborted");
    else this.#settlement.used(PROMPT_ONLY);
  }

  resume(): void {
    this.#attempt?.timer?.resumed();
    this.#attempt?.http?.resume();
  }

  get spareTargets(): number {
    return this.#targets.left;
  }

  tryNext(reason: string): boolean {
    if (this.#attempt === undefined || this.#state !== "waiting" || !this.#planNext()) return false;
    this.#failOver({ reason, cause: "timeout", ejects: true });
    return true;
  }

  #sign(candidate: Candidate, plan: UpstreamPlan): void {
    const { target } = candidate;
    const request = upstreamRequest(this.#exchange, plan, candidate);
    const { protocol, host, port } = target.address;
    const { method, path, headers } = request;
    const signing = target.sign?.({ method, protocol, hostname: host, port, path, headers, body: plan.body });
    if (signing === undefined) this.#send(candidate, plan, request);
    else
      signing
        .then(() => {
          if (!isOver(this.#state)) this.#send(candidate, plan, request);
        })
        .catch((error) => {
          if (error instanceof CredentialError) this.#credentialFailed(candidate, error);
          else this.#fail(error);
        });
  }

  #credentialFailed({ target }: Candidate, error: CredentialError): void {
    if (isOver(this.#state)) return;
    if (this.#planNext()) {
      this.#startNext(target, error.message, "credential");
      return;
    }
    const rejection = { status: 503, message: error.message, code: "provider_credential_unavailable" };
    this.#reject(rejection, { "retry-after": String(error.retryAfterSeconds) });
  }

  #send(candidate: Candidate, plan: UpstreamPlan, request: OutgoingRequest): void {
    const { target } = candidate;
    const needsKey = target.provider.credential === "aws" && target.credential.kind === "client";
    if (needsKey && !request.headers.has("authorization")) {
      this.#reject(MISSING_AWS_KEYS);
      return;
    }
    const { trace, attributes } = this.#exchange;
    const { names } = plan.context.losses;
    if (names.length > 0) trace?.point({ type: "policyEvent", kind: "llmDropped", details: { members: names } });
    if (attributes.llm && (names.length > 0 || attributes.llm.dropped !== undefined)) attributes.llm.dropped = names;
    const scheme = target.address.protocol;
    const served = { provider: target.provider.name, model: candidate.model === "" ? undefined : candidate.model };
    this.#receiver.attempt(target.display, trace && { over: "http", scheme, request }, served);
    const calls = 1 + plan.more.length;
    if (target.quota) {
      const { quota } = target;
      const tokens = quota.countsTokens ? (attributes.llm?.estimatedTokens ?? 0) : 0;
      this.#settlement.chargeQuota(quota.begin(tokens, calls));
    }
    const attempt: Attempt = {
      candidate,
      plan,
      http: undefined,
      timer: undefined,
      held: undefined,
      response: undefined,
    };
    this.#attempt = attempt;
    if (calls === 1) attempt.http = target.upstream.send(request, this);
    else {
      trace?.point({ type: "policyEvent", kind: "llmParts", details: { calls } });
      if (attributes.llm) attributes.llm.providerCalls = calls;
      attempt.http = sendSplitRequest(this.#exchange, plan, candidate, request, this, (tokens) =>
        this.#settlement.addSpent(tokens),
      );
    }
    const { timeouts } = target;
    if (timeouts)
      attempt.timer = new ResponseTimer(this.#options.clock, timeouts, (detail) => this.#timedOut(attempt, detail));
  }

  head(status: number, headers: HeaderList): void {
    const attempt = this.#attempt;
    if (attempt === undefined) return;
    const { target } = attempt.candidate;
    const id = providerRequestId(headers);
    const { llm } = this.#exchange.attributes;
    if (id !== undefined && llm) llm.providerRequestId = id;
    this.#receiver.received(status, headers);
    if (status === 401 || status === 403) invalidateCredential(target.credential);
    if (attempt.plan.addsStreamOptions && mayNameField(status))
      attempt.held = { status, headers, error: [], errorBytes: 0, isOptionsCheck: true };
    else this.#decide(attempt, status, headers);
  }

  #decide(attempt: Attempt, status: number, headers: HeaderList): void {
    const { target } = attempt.candidate;
    const { rules, clock } = this.#options;
    const ownKey = target.credential.kind !== "client";
    const ejects = rules.ejects(status, ownKey);
    const failsOver = rules.onStatus(status, ownKey);
    const mayBeTooLong = (status === 400 || status === 413) && rules.onContextLength;
    const hasNext = (failsOver || mayBeTooLong) && this.#planNext();
    if (failsOver && hasNext) {
      const retryAfter = retryAfterSeconds(headers, clock.now());
      this.#failOver({ reason: `status ${status}`, cause: String(status), retryAfterSeconds: retryAfter, ejects });
    } else if (status >= 300 && status < 400) {
      this.#cancel();
      const message = "the provider returned a redirect, which is not followed";
      this.#reject({ status: 502, message, code: "upstream_redirect" });
    } else if (mayBeTooLong && hasNext)
      attempt.held = { status, headers, error: [], errorBytes: 0, isOptionsCheck: false };
    else if (status < 400 && target.timeouts?.firstByteMs !== undefined)
      attempt.held = { status, headers, error: undefined, errorBytes: 0, isOptionsCheck: false };
    else {
      if (ejects) target.health.recordFailure(retryAfterSeconds(headers, clock.now()));
      else target.health.recordSuccess();
      this.#commit(attempt, status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    const attempt = this.#attempt;
    if (attempt === undefined) return true;
    const { held } = attempt;
    if (held) {
      held.error?.push(chunk);
      held.errorBytes += chunk.length;
      if (held.error && held.errorBytes <= MAX_ERROR_BYTES) return true;
      if (held.isOptionsCheck) {
        this.#decideHeld(attempt, held);
        return true;
      }
      this.#commitHeld(attempt, held);
      if (held.error) return true;
    }
    const acceptsMore = attempt.response?.data(chunk) ?? true;
    attempt.timer?.received(acceptsMore);
    return acceptsMore;
  }

  partReceived(): void {
    this.#attempt?.timer?.received(true);
  }

  end(trailers: readonly string[]): void {
    const attempt = this.#attempt;
    if (attempt === undefined) return;
    attempt.timer?.stop();
    if (attempt.held?.isOptionsCheck && this.#endOptionsCheck(attempt, attempt.held)) return;
    const { held } = attempt;
    if (held?.error && isContextLengthError(Buffer.concat(held.error).toString("utf8")) && this.#planNext()) {
      this.#failOver({ reason: "the prompt is too long for its model", cause: "context_length", ejects: false });
      return;
    }
    if (held) this.#commitHeld(attempt, held);
    if (this.#transition("end")) attempt.response?.end(trailers);
  }

  /** Returns true if `attempt` is no longer the current attempt. */
  #endOptionsCheck(attempt: Attempt, held: HeldHead): boolean {
    const { candidate } = attempt;
    if (!isStreamOptionsError(Buffer.concat(held.error ?? []).toString("utf8"))) this.#decideHeld(attempt, held);
    else {
      candidate.target.memory.rejectsStreamOptions = true;
      this.#options.logger.warn("the provider rejects stream_options, so the tokens of its streams are estimated", {
        target: candidate.target.name,
        status: held.status,
      });
      this.#attempt = undefined;
      this.#receiver.missed("the provider rejects stream_options");
      try {
        this.#sign(candidate, planRequest(this.#llm, this.#exchange.request, candidate, this.#options));
      } catch (error) {
        this.#fail(error);
      }
    }
    return this.#attempt !== attempt;
  }

  #decideHeld(attempt: Attempt, { status, headers, error }: HeldHead): void {
    attempt.held = undefined;
    this.#decide(attempt, status, headers);
    for (const chunk of error ?? []) if (this.#attempt === attempt) this.data(chunk);
  }

  fail(error: HttpClientError): void {
    this.#attempt?.timer?.stop();
    // An invalid request or an internal error does not indicate a faulty target.
    const isTargetFault = error.kind !== "request" && error.kind !== "internal";
    this.#targetFailed(error, isTargetFault ? { reason: error.message, cause: "connection", ejects: true } : undefined);
  }

  #timedOut(attempt: Attempt, detail: string): void {
    attempt.http?.abort();
    this.#targetFailed(new GatewayError("backend_timeout", { detail }), {
      reason: detail,
      cause: "timeout",
      ejects: true,
    });
  }

  /** Fails the response if it is committed. Otherwise, tries the next target if `failure` is set. */
  #targetFailed(error: HttpClientError | GatewayError, failure: TargetFailure | undefined): void {
    const attempt = this.#attempt;
    if (attempt?.response) {
      if (this.#transition("error")) attempt.response.fail(error);
      else this.#lose(error);
    } else if (failure && this.#planNext()) this.#failOver(failure);
    else {
      if (failure) attempt?.candidate.target.health.recordFailure(undefined);
      this.#fail(error);
    }
  }

  #commit(attempt: Attempt, status: number, headers: HeaderList): void {
    if (!this.#transition("head")) return;
    if (status < 400) this.#settlement.modelAccepted();
    const { plan } = attempt;
    attempt.response = plan.translation
      ? new TranslatedResponse(this.#receiver, plan, plan.translation, this.#settlement, {
          isClientGone: () => this.#exchange.isOver,
          hold: (bytes) => this.#exchange.holdResponse(bytes),
          stop: () => {
            this.#transition("error");
            this.#cancel();
          },
        })
      : new NativeResponse(this.#receiver, plan.clientFormat, this.#settlement, plan.hidesUsage);
    attempt.response.head(status, headers);
  }

  #commitHeld(attempt: Attempt, { status, headers, error }: HeldHead): void {
    attempt.held = undefined;
    attempt.candidate.target.health.recordSuccess();
    this.#commit(attempt, status, headers);
    for (const chunk of error ?? []) attempt.response?.data(chunk);
  }

  /** Returns false if no target is left or planning fails. */
  #planNext(): boolean {
    try {
      return this.#targets.planNext() !== undefined;
    } catch (error) {
      // An error while planning the next target must not replace the outcome of the current one.
      this.#options.logger.error("the next provider does not support the request", {
        error: String(error),
        request: this.#exchange.id,
      });
      return false;
    }
  }

  #failOver({ reason, cause, retryAfterSeconds: retryAfter, ejects }: TargetFailure): void {
    const attempt = this.#attempt;
    if (attempt === undefined) return;
    const { target } = attempt.candidate;
    this.#cancel();
    this.#attempt = undefined;
    this.#receiver.missed(reason);
    if (ejects) target.health.recordFailure(retryAfter);
    this.#startNext(target, reason, cause);
  }

  #startNext(target: Target, reason: string, cause: string): void {
    this.#options.metrics.failover(target.provider.name, cause);
    this.#options.logger.warn("trying the next provider", { target: target.name, reason, request: this.#exchange.id });
    this.start();
  }

  #cancel(): void {
    this.#attempt?.timer?.stop();
    this.#attempt?.http?.abort();
  }

  #fail(error: unknown): void {
    if (this.#transition("error")) this.#lose(error);
  }

  #lose(error: unknown): void {
    const failure =
      error instanceof GatewayError || error instanceof HttpClientError
        ? error
        : new GatewayError("internal", { cause: error });
    this.#settlement.unused(failure instanceof GatewayError ? failure.code : failure.kind);
    this.#receiver.fail(failure);
  }

  #rejectUnserved(): void {
    const { rejection, retryAfterSeconds: retryAfter } = this.#targets;
    if (rejection === undefined) return;
    const isLimited = rejection.status === 429 && retryAfter !== undefined;
    this.#reject(rejection, isLimited ? { "retry-after": String(retryAfter) } : {});
  }

  #reject(error: LlmError, headers?: Readonly<Record<string, string>>): void {
    const { errorFormat } = this.#llm.dialect;
    const allHeaders = { ...errorHeaders(errorFormat, error.status), ...headers };
    this.#reply(error.status, errorBody(errorFormat, error), allHeaders, error.code);
  }

  #estimateTokenCount(bytes: Buffer): void {
    if (bytes.length <= SLICED_BYTES) this.#replyTokenCount(estimateRequestTokens(bytes));
    else
      runInSlices(estimateSteps(bytes), () => isOver(this.#state))
        .then((tokens) => this.#replyTokenCount(tokens))
        .catch((error) => this.#fail(error));
  }

  #replyTokenCount(tokens: number): void {
    const isGoogle = tokenCountFormat(this.#llm.dialect) === "generateContent";
    this.#reply(200, isGoogle ? { totalTokens: tokens } : { input_tokens: tokens });
  }

  #reply(status: number, body: Members, headers: Readonly<Record<string, string>> = {}, errorType = ""): void {
    if (!this.#transition("head") || !this.#transition("end")) return;
    this.#settlement.unused(errorType);
    sendJson(this.#receiver, status, body, headers);
  }

  #transition(event: AttemptEvent): boolean {
    const next = afterEvent(this.#state, event);
    if (next === undefined) return false;
    this.#state = next;
    return true;
  }
}

export function sendJson(
  receiver: ResponseReceiver,
  status: number,
  body: Members,
  extra: Readonly<Record<string, string>> = {},
): void {
  const bytes = Buffer.from(JSON.stringify(body));
  const headers = { "content-type": "application/json", "content-length": String(bytes.length), ...extra };
  receiver.head(status, HeaderList.of(headers));
  receiver.data(bytes);
  receiver.end();
}

interface PlannedTarget {
  readonly candidate: Candidate;
  /** If undefined, the gateway responds itself with an estimated token count. */
  readonly plan: UpstreamPlan | undefined;
}

/**
 * Queues the targets of one call in the order to try them, and plans each target on demand. Targets whose translation
 * drops parameters come last. Targets that cannot serve the request are skipped.
 */
class TargetQueue {
  rejection: LlmError | undefined = undefined;
  /** Holds the shortest time until the quota window of a skipped target ends. */
  retryAfterSeconds: number | undefined = undefined;
  readonly #llm: LlmCall;
  readonly #exchange: Exchange;
  readonly #candidates: readonly Candidate[];
  readonly #options: PlanOptions;
  readonly #lossy: PlannedTarget[] = [];
  #index = 0;
  #next: PlannedTarget | undefined = undefined;

  constructor(llm: LlmCall, exchange: Exchange, candidates: readonly Candidate[], options: PlanOptions) {
    this.#llm = llm;
    this.#exchange = exchange;
    this.#candidates = candidates;
    this.#options = options;
  }

  /** Returns an upper bound, because planning can skip targets. */
  get left(): number {
    return this.#candidates.length - this.#index + this.#lossy.length + (this.#next === undefined ? 0 : 1);
  }

  /** Returns the target that `take` will return, or undefined if no target is left. */
  planNext(): PlannedTarget | undefined {
    while (this.#next === undefined) {
      const candidate = this.#candidates[this.#index];
      if (!candidate) {
        this.#next = this.#lossy.shift();
        return this.#next;
      }
      this.#index += 1;
      const planned = this.#plan(candidate);
      if (planned?.plan?.translation && planned.plan.context.losses.names.length > 0) this.#lossy.push(planned);
      else this.#next = planned;
    }
    return this.#next;
  }

  take(): PlannedTarget | undefined {
    const next = this.planNext();
    this.#next = undefined;
    return next;
  }

  #plan(candidate: Candidate): PlannedTarget | undefined {
    const { quota } = candidate.target;
    if (quota?.isExhausted()) {
      const seconds = quota.secondsLeft();
      this.retryAfterSeconds = Math.min(this.retryAfterSeconds ?? seconds, seconds);
      this.rejection ??= { status: 429, message: QUOTA_EXHAUSTED, code: "rate_limited" };
      return undefined;
    }
    const countFormat = tokenCountFormat(this.#llm.dialect);
    // Only a provider of the client's dialect can count tokens. For other providers, the gateway estimates them.
    if (
      countFormat !== undefined &&
      candidate.target.provider.upstreamFormat(countFormat, candidate.model) !== countFormat
    )
      return { candidate, plan: undefined };
    try {
      return { candidate, plan: planRequest(this.#llm, this.#exchange.request, candidate, this.#options) };
    } catch (error) {
      if (!(error instanceof LlmRejection)) throw error;
      this.rejection ??= error.error;
      return undefined;
    }
  }
}

const QUOTA_EXHAUSTED = "the model's requests or tokens per minute are exhausted";

/** Returns undefined unless the request counts tokens in the Messages or Gemini API. */
function tokenCountFormat({ operation, format, suffix }: Dialect): Format | undefined {
  if (operation !== "count") return undefined;
  if (format === "messages") return format;
  return suffix.endsWith(":countTokens") ? "generateContent" : undefined;
}

/**
 * Enforces the first-byte and idle timeouts of a target. Time during which the client is not reading does not count.
 */
class ResponseTimer {
  readonly #clock: Clock;
  readonly #timeouts: TargetTimeouts;
  readonly #onExpired: (detail: string) => void;
  #timer: Timer | undefined = undefined;
  #receivedMs = 0;
  #hasFirstByte = false;
  #isPaused = false;
  #isStopped = false;

  constructor(clock: Clock, timeouts: TargetTimeouts, onExpired: (detail: string) => void) {
    this.#clock = clock;
    this.#timeouts = timeouts;
    this.#onExpired = onExpired;
    const { firstByteMs } = timeouts;
    if (firstByteMs !== undefined) this.#arm(firstByteMs, () => this.#expire(`no first byte within ${firstByteMs} ms`));
  }

  received(acceptsMore: boolean): void {
    if (this.#isStopped) return;
    this.#isPaused = !acceptsMore;
    this.#receivedMs = this.#clock.monotonicMs();
    if (this.#hasFirstByte) return;
    this.#hasFirstByte = true;
    this.#timer?.cancel();
    const { idleMs } = this.#timeouts;
    if (idleMs !== undefined) this.#arm(idleMs, () => this.#checkIdle(idleMs));
  }

  resumed(): void {
    if (this.#isPaused) this.received(true);
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }

  #checkIdle(idleMs: number): void {
    const silentMs = this.#isPaused ? 0 : this.#clock.monotonicMs() - this.#receivedMs;
    if (silentMs >= idleMs) this.#expire(`no byte for ${idleMs} ms`);
    else this.#arm(idleMs - silentMs, () => this.#checkIdle(idleMs));
  }

  #arm(delayMs: number, callback: () => void): void {
    this.#timer = this.#clock.after(delayMs, () => {
      if (!this.#isStopped) callback();
    });
  }

  #expire(detail: string): void {
    this.stop();
    this.#onExpired(detail);
  }
}
