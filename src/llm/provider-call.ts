/**
 * Makes one call to an LLM provider until its response is committed to the client, and decides whether the response
 * fails over. Redirects are never followed, because a provider key must not be sent to an address from a response.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import type { AttemptFailure, Targets } from "../core/targets.ts";
import type { HeaderList } from "../http/headers.ts";
import type { HttpCall, HttpClientError, OutgoingRequest } from "../http/http-client.ts";
import { CredentialError } from "../identity/cloud/renewable.ts";
import type { Logger } from "../record/log/logger.ts";
import { invalidateCredential, MISSING_AWS_KEYS } from "./models/credential.ts";
import type { Candidate } from "./models/model-table.ts";
import { FEATURES, forgetGuesses, providerRequestId, rejectedFeature, retryAfterSeconds } from "./models/providers.ts";
import type { FailoverRules, TargetTimeouts } from "./models/target.ts";
import { NativeResponse, type ProviderResponse, TranslatedResponse } from "./provider-response.ts";
import { isContextLengthError, type LlmError } from "./request/llm-errors.ts";
import { type LlmMetrics, PROMPT_ONLY, type Settlement } from "./settlement.ts";
import { SplitCall, type SplitCallHandler } from "./split-request.ts";
import { type PlanOptions, signedRequest, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";
import type { PriceCatalogue } from "./usage/usage.ts";

/** Longer error bodies are not inspected. */
const MAX_ERROR_BYTES = 64 * 1024;

export interface FailoverOptions extends PlanOptions {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly rules: FailoverRules;
  readonly prices: PriceCatalogue | undefined;
}

export interface ProviderFailure extends AttemptFailure {
  /**
   * The cause is a metric label, so it is a status code or a fixed word. It is undefined if the runner ended the wait
   * for the response head.
   */
  readonly cause?: string;
  readonly retryAfterSeconds?: number | undefined;
  /** If false, the failure is not recorded in the target's health. */
  readonly ejects?: boolean;
  /** If true, the same target is called again with a new plan. */
  readonly repeats?: boolean;
}

export interface ProviderCallOwner extends Targets<ProviderFailure> {
  readonly options: FailoverOptions;
  readonly exchange: Exchange;
  readonly receiver: ResponseReceiver;
  readonly settlement: Settlement;
  /** Returns false if no target is left or planning fails. */
  hasTarget(): boolean;
  /** Replaces the current call with another one. Returns false if there is none. */
  next(failure: ProviderFailure): boolean;
  reject(error: LlmError, headers?: Readonly<Record<string, string>>): void;
  fail(error: unknown): void;
}

interface HeldHead {
  readonly status: number;
  readonly headers: HeaderList;
  /** Holds the body of an error that may cause another call. Undefined if the call only waits for the first byte. */
  readonly error: Buffer[] | undefined;
  /** True if the server may have rejected a feature of the call. */
  readonly isFeatureCheck: boolean;
  errorBytes: number;
}

export class ProviderCall implements SplitCallHandler {
  readonly candidate: Candidate;
  readonly #plan: UpstreamPlan;
  readonly #targets: ProviderCallOwner;
  readonly #options: FailoverOptions;
  readonly #exchange: Exchange;
  readonly #receiver: ResponseReceiver;
  readonly #settlement: Settlement;
  #http: HttpCall | undefined = undefined;
  #timer: ResponseTimer | undefined = undefined;
  #held: HeldHead | undefined = undefined;
  #response: ProviderResponse | undefined = undefined;
  #isSent = false;
  #isOver = false;

  constructor(targets: ProviderCallOwner, candidate: Candidate, plan: UpstreamPlan) {
    this.#targets = targets;
    this.candidate = candidate;
    this.#plan = plan;
    this.#options = targets.options;
    this.#exchange = targets.exchange;
    this.#receiver = targets.receiver;
    this.#settlement = targets.settlement;
  }

  start(): void {
    const { target } = this.candidate;
    const { path, body, translatedTo } = this.#plan;
    const request = upstreamRequest(this.#exchange, target, path, body, translatedTo);
    const signing = target.sign?.(signedRequest(request, target, body));
    if (signing === undefined) this.#send(request);
    else
      signing
        .then(() => {
          if (!this.#isOver) this.#send(request);
        })
        .catch((error) => {
          if (error instanceof CredentialError) this.#credentialFailed(error);
          else if (!this.#isOver) this.#targets.fail(error);
        });
  }

  /** True from when the request is sent until a response is committed. */
  get isAwaitingResponse(): boolean {
    return this.#isSent && !this.#isOver && this.#response === undefined;
  }

  /** Ends the call without settling it. */
  stop(): void {
    this.#isOver = true;
    this.#timer?.stop();
    this.#http?.abort();
  }

  abort(): void {
    if (this.#isOver) return;
    this.stop();
    if (this.#response) this.#response.abort();
    // Aborting a split request has already reported its spending.
    else if (!this.#isSent || this.#held?.error || this.#plan.more.length > 0) this.#settlement.unused("aborted");
    else this.#settlement.used(PROMPT_ONLY);
  }

  resume(): void {
    this.#timer?.resumed();
    this.#http?.resume();
  }

  #credentialFailed(error: CredentialError): void {
    if (this.#isOver || this.#targets.next({ reason: error.message, cause: "credential", ejects: false })) return;
    const rejection = { status: 503, message: error.message, code: "provider_credential_unavailable" };
    this.#targets.reject(rejection, { "retry-after": String(error.retryAfterSeconds) });
  }

  #send(request: OutgoingRequest): void {
    const { target, model } = this.candidate;
    const plan = this.#plan;
    const needsKey = target.provider.credential === "aws" && target.credential.kind === "client";
    if (needsKey && !request.headers.has("authorization")) {
      this.#targets.reject(MISSING_AWS_KEYS);
      return;
    }
    const { trace, attributes } = this.#exchange;
    const { names } = plan.context.losses;
    if (names.length > 0) trace?.point({ type: "policyEvent", kind: "llmDropped", details: { members: names } });
    if (attributes.llm && (names.length > 0 || attributes.llm.dropped !== undefined)) attributes.llm.dropped = names;
    const scheme = target.address.protocol;
    const served = { provider: target.provider.name, model: model === "" ? undefined : model };
    this.#receiver.attempt(target.display, trace && { over: "http", scheme, request }, served, this.#targets);
    const calls = 1 + plan.more.length;
    if (target.quota) {
      const { quota } = target;
      const tokens = quota.countsTokens ? (attributes.llm?.estimatedTokens ?? 0) : 0;
      this.#settlement.chargeQuota(quota.begin(tokens, calls));
    }
    this.#isSent = true;
    if (calls === 1) this.#http = target.upstream.send(request, this);
    else {
      trace?.point({ type: "policyEvent", kind: "llmParts", details: { calls } });
      if (attributes.llm) attributes.llm.providerCalls = calls;
      this.#http = new SplitCall(this.#exchange, plan, this.candidate, request, this, (tokens) =>
        this.#settlement.addSpent(tokens),
      );
    }
    const { timeouts } = target;
    if (timeouts) this.#timer = new ResponseTimer(this.#options.clock, timeouts, (detail) => this.#timedOut(detail));
  }

  head(status: number, headers: HeaderList): void {
    const { target } = this.candidate;
    const id = providerRequestId(headers);
    const { llm } = this.#exchange.attributes;
    if (id !== undefined && llm) llm.providerRequestId = id;
    this.#receiver.received(status, headers);
    if (status === 401 || status === 403) invalidateCredential(target.credential);
    if (this.#plan.features.some((feature) => FEATURES[feature].hasStatus(status)))
      this.#held = { status, headers, error: [], errorBytes: 0, isFeatureCheck: true };
    else this.#decide(status, headers);
  }

  #decide(status: number, headers: HeaderList): void {
    const { target } = this.candidate;
    forgetGuesses(target.memory.rejectedFeatures, status);
    const { rules, clock } = this.#options;
    const ownKey = target.credential.kind !== "client";
    const ejects = rules.ejects(status, ownKey);
    const retryAfter = ejects ? retryAfterSeconds(headers, clock.now()) : undefined;
    const mayBeTooLong = (status === 400 || status === 413) && rules.onContextLength;
    if (rules.onStatus(status, ownKey) && this.#targets.next(statusFailure(status, retryAfter, ejects))) return;
    if (status >= 300 && status < 400) {
      this.stop();
      const message = "the provider returned a redirect, which is not followed";
      this.#targets.reject({ status: 502, message, code: "upstream_redirect" });
    } else if (mayBeTooLong && this.#targets.hasTarget())
      this.#held = { status, headers, error: [], errorBytes: 0, isFeatureCheck: false };
    else if (status < 400 && target.timeouts?.firstByteMs !== undefined)
      this.#held = { status, headers, error: undefined, errorBytes: 0, isFeatureCheck: false };
    else {
      if (ejects) target.health.recordFailure(retryAfter);
      else target.health.recordSuccess();
      this.#commit(status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    const held = this.#held;
    if (held) {
      held.error?.push(chunk);
      held.errorBytes += chunk.length;
      if (held.error && held.errorBytes <= MAX_ERROR_BYTES) return true;
      if (held.isFeatureCheck) {
        this.#decideHeld(held);
        return true;
      }
      this.#commitHeld(held);
      if (held.error) return true;
    }
    const acceptsMore = this.#response?.data(chunk) ?? true;
    this.#timer?.received(acceptsMore);
    return acceptsMore;
  }

  partReceived(): void {
    this.#timer?.received(true);
  }

  end(trailers: readonly string[]): void {
    this.#timer?.stop();
    if (this.#held?.isFeatureCheck) this.#endFeatureCheck(this.#held);
    if (this.#isOver) return;
    const held = this.#held;
    if (held?.error && this.#failsOverTooLong(held.error)) return;
    if (held) this.#commitHeld(held);
    if (this.#isOver) return;
    this.#isOver = true;
    this.#response?.end(trailers);
  }

  #endFeatureCheck(held: HeldHead): void {
    const { target } = this.candidate;
    const body = Buffer.concat(held.error ?? []).toString("utf8");
    const feature = rejectedFeature(this.#plan.features, held.status, body);
    if (feature !== undefined) {
      target.memory.rejectedFeatures.add(feature);
      const { rejection, consequence } = FEATURES[feature];
      this.#options.logger.warn(`${rejection}, so ${consequence}`, { target: target.name, status: held.status });
      if (this.#targets.next({ reason: rejection, cause: feature, repeats: true })) return;
    }
    this.#decideHeld(held);
  }

  #decideHeld({ status, headers, error }: HeldHead): void {
    this.#held = undefined;
    this.#decide(status, headers);
    for (const chunk of error ?? []) if (!this.#isOver) this.data(chunk);
  }

  #failsOverTooLong(error: readonly Buffer[]): boolean {
    if (!isContextLengthError(Buffer.concat(error).toString("utf8"))) return false;
    return this.#targets.next({
      reason: "the prompt is too long for its model",
      cause: "context_length",
      ejects: false,
    });
  }

  fail(error: HttpClientError): void {
    this.#timer?.stop();
    // An invalid request or an internal error does not indicate a faulty target.
    const isTargetFault = error.kind !== "request" && error.kind !== "internal";
    this.#failed(error, isTargetFault ? { reason: error.message, cause: "connection" } : undefined);
  }

  #timedOut(detail: string): void {
    this.#http?.abort();
    this.#failed(new GatewayError("backend_timeout", { detail }), { reason: detail, cause: "timeout" });
  }

  /** Fails the response if it is committed. Otherwise, tries the next target if `failure` is set. */
  #failed(error: HttpClientError | GatewayError, failure: ProviderFailure | undefined): void {
    if (this.#response && !this.#isOver) {
      this.#isOver = true;
      this.#response.fail(error);
      return;
    }
    if (this.#response === undefined && failure) {
      if (this.#targets.next(failure)) return;
      this.candidate.target.health.recordFailure(undefined);
    }
    this.#isOver = true;
    this.#targets.fail(error);
  }

  #commit(status: number, headers: HeaderList): void {
    if (status < 400) this.#settlement.modelAccepted();
    const plan = this.#plan;
    this.#response = plan.translation
      ? new TranslatedResponse(this.#receiver, plan, plan.translation, this.#settlement, {
          isClientGone: () => this.#exchange.isOver,
          hold: (bytes) => this.#exchange.holdResponse(bytes),
          stop: () => this.stop(),
        })
      : new NativeResponse(this.#receiver, plan.clientFormat, this.#settlement, plan.hidesUsage);
    this.#response.head(status, headers);
  }

  #commitHeld({ status, headers, error }: HeldHead): void {
    this.#held = undefined;
    this.candidate.target.health.recordSuccess();
    this.#commit(status, headers);
    for (const chunk of error ?? []) this.#response?.data(chunk);
  }
}

function statusFailure(status: number, retryAfter: number | undefined, ejects: boolean): ProviderFailure {
  return { reason: `status ${status}`, cause: String(status), retryAfterSeconds: retryAfter, ejects };
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
