/**
 * One LLM call: the targets in their order, the next one when a target cannot be reached, is too slow, or answers with
 * what `failoverOn` names, as long as nothing has reached the client. A target that cannot be asked in the client's words is
 * passed over; the last answer is the client's, whatever it is. Redirects are never followed: a key must not go where
 * an answer points.
 */

import type { Clock } from "../../base/clock.ts";
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { type AttemptEvent, type AttemptState, afterEvent, isOver } from "../../http/attempt-state.ts";
import { HeaderList } from "../../http/headers.ts";
import { type HttpCall, HttpClientError, type OutgoingRequest } from "../../http/http-client.ts";
import type { Members } from "../../json/json.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { MISSING_AWS_KEYS } from "../credentials/credential.ts";
import { CredentialError } from "../credentials/renewable.ts";
import type { FailoverRules } from "../models/failover-rules.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Target } from "../models/target.ts";
import type { LlmCall } from "../request/llm-call.ts";
import { errorBody, errorHeaders, type LlmError } from "../request/llm-errors.ts";
import { providerRequestId } from "../request/provider.ts";
import { estimateRequestTokens } from "../usage/estimate-tokens.ts";
import type { LlmMetrics } from "../usage/llm-metrics.ts";
import { type Answer, NativeAnswer } from "./native-answer.ts";
import { sendParts } from "./send-parts.ts";
import type { Settlement } from "./settlement.ts";
import { type AttemptOwner, TargetAttempt, type TargetFailure } from "./target-attempt.ts";
import { countedFormat, TargetQueue } from "./target-queue.ts";
import { TranslatedAnswer } from "./translated-answer.ts";
import { type PlanEnv, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

export interface RunEnv extends PlanEnv {
  readonly logger: Logger;
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly rules: FailoverRules;
}

export class AiRun implements BackendRun, AttemptOwner {
  readonly #env: RunEnv;
  readonly #exchange: Exchange;
  readonly #call: BackendCall;
  readonly #llm: LlmCall;
  readonly #targets: TargetQueue;
  readonly #settlement: Settlement;
  /** The target that is being asked or answers; the one before it is closed when another takes its place. */
  #attempt: TargetAttempt | undefined;
  #state: AttemptState = "asked";

  constructor(
    env: RunEnv,
    exchange: Exchange,
    call: BackendCall,
    llm: LlmCall,
    candidates: readonly Candidate[],
    settlement: Settlement,
  ) {
    this.#env = env;
    this.#exchange = exchange;
    this.#call = call;
    this.#llm = llm;
    this.#targets = new TargetQueue(llm, exchange.request, candidates, env);
    this.#settlement = settlement;
  }

  start(): void {
    if (isOver(this.#state)) return;
    try {
      const planned = this.#targets.take();
      if (planned === undefined) {
        const { refusal, retryAfterSeconds } = this.#targets;
        const isBusy = refusal?.status === 429 && retryAfterSeconds !== undefined;
        if (refusal) this.#refuse(refusal, isBusy ? { "retry-after": String(retryAfterSeconds) } : {});
        return;
      }
      const { candidate, plan } = planned;
      const facts = this.#exchange.facts.llm;
      if (facts) facts.provider = candidate.target.provider.name;
      this.#settlement.asks(candidate.model);
      if (plan === undefined) this.#replyCount(estimateRequestTokens(this.#llm.bytes));
      else this.#send(candidate, plan);
    } catch (error) {
      this.fail(error);
    }
  }

  abort(): void {
    if (!this.#goes("abort")) return;
    if (this.#attempt) this.#attempt.abandon(this.#settlement);
    else this.#settlement.nothing("aborted");
  }

  resume(): void {
    this.#attempt?.resume();
  }

  get spareTargets(): number {
    return this.#targets.left;
  }

  /** The target that is asked takes too long. */
  tryNext(reason: string): boolean {
    const attempt = this.#attempt;
    if (attempt === undefined || this.#state !== "asked" || !this.hasNext) return false;
    attempt.drop();
    this.giveUp(attempt.candidate.target, { reason, cause: "timeout", rests: true });
    return true;
  }

  #send(candidate: Candidate, plan: UpstreamPlan): void {
    const { target } = candidate;
    const request = upstreamRequest(this.#exchange, plan, candidate);
    const { protocol, host, port } = target.address;
    const { method, path, headers } = request;
    const sealing = target.seal?.({ method, protocol, hostname: host, port, path, headers, body: plan.body });
    if (sealing === undefined) this.#dispatch(candidate, plan, request);
    else
      sealing
        .then(() => {
          if (!isOver(this.#state)) this.#dispatch(candidate, plan, request);
        })
        .catch((error) => {
          if (error instanceof CredentialError) this.#withoutCredential(candidate, error);
          else this.fail(error);
        });
  }

  /** The next target may have a credential that works. */
  #withoutCredential({ target }: Candidate, error: CredentialError): void {
    if (isOver(this.#state)) return;
    if (this.hasNext) {
      this.#next(target, error.message, "credential");
      return;
    }
    const said = { status: 503, message: error.message, code: "provider_credential_unavailable" };
    this.#refuse(said, { "retry-after": String(error.retryAfterSeconds) });
  }

  #dispatch(candidate: Candidate, plan: UpstreamPlan, request: OutgoingRequest): void {
    const { target } = candidate;
    const needsKey = target.provider.credential === "aws" && target.credential.kind === "client";
    if (needsKey && !request.headers.has("authorization")) {
      this.#refuse(MISSING_AWS_KEYS);
      return;
    }
    const { names } = plan.context.losses;
    if (names.length > 0)
      this.#exchange.trace?.point({ type: "policyEvent", kind: "llmDropped", details: { members: names } });
    const scheme = target.address.protocol;
    this.#call.attempt(target.display, this.#exchange.trace && { over: "http", scheme, request });
    if (target.quota) {
      const { quota } = target;
      const tokens = quota.countsTokens ? (this.#exchange.facts.llm?.estimatedTokens ?? 0) : 0;
      this.#settlement.charges(quota.begin(tokens, 1 + plan.more.length));
    }
    const attempt = new TargetAttempt(this, candidate, plan);
    this.#attempt = attempt;
    attempt.sent(
      plan.more.length === 0 ? target.upstream.send(request, attempt) : this.#sendParts(attempt, plan, request),
    );
  }

  #sendParts(attempt: TargetAttempt, plan: UpstreamPlan, first: OutgoingRequest): HttpCall {
    const calls = 1 + plan.more.length;
    const { trace, facts } = this.#exchange;
    trace?.point({ type: "policyEvent", kind: "llmParts", details: { calls } });
    if (facts.llm) facts.llm.providerCalls = calls;
    return sendParts(this.#exchange, plan, attempt.candidate, first, attempt, (used) => this.#settlement.spent(used));
  }

  // FROM THE ATTEMPT AT ONE TARGET

  received(status: number, headers: HeaderList): void {
    const id = providerRequestId(headers);
    const { llm } = this.#exchange.facts;
    if (id !== undefined && llm) llm.providerRequestId = id;
    this.#call.received(status, headers);
  }

  get hasNext(): boolean {
    try {
      return this.#targets.left > 0 && this.#targets.hasNext;
    } catch (error) {
      // A defect of ours must not cost the client the answer that there is.
      this.#env.logger.error("the next provider does not support the request", {
        error: String(error),
        request: this.#exchange.id,
      });
      return false;
    }
  }

  get isLeft(): boolean {
    return this.#exchange.isOver;
  }

  get rules(): FailoverRules {
    return this.#env.rules;
  }

  get clock(): Clock {
    return this.#env.clock;
  }

  giveUp(target: Target, { reason, cause, retryAfterSeconds, rests }: TargetFailure): void {
    this.#attempt = undefined;
    this.#call.missed(reason);
    if (rests) target.health.failed(retryAfterSeconds);
    this.#next(target, reason, cause);
  }

  #next(target: Target, reason: string, cause: string): void {
    this.#env.metrics.failover(target.provider.name, cause);
    this.#env.logger.warn("trying the next provider", { target: target.name, reason, request: this.#exchange.id });
    this.start();
  }

  answerOf(status: number, plan: UpstreamPlan): Answer | undefined {
    if (!this.#goes("head")) return undefined;
    if (status < 400) this.#settlement.answered();
    return plan.translation
      ? new TranslatedAnswer(this.#call, plan, plan.translation, this.#settlement, this)
      : new NativeAnswer(this.#call, plan.clientFormat, this.#settlement, plan.hidesUsage);
  }

  refuseRedirect(): void {
    this.#refuse({
      status: 502,
      message: "the provider returned a redirect, which is not followed",
      code: "upstream_redirect",
    });
  }

  finish(event: "end" | "error"): boolean {
    return this.#goes(event);
  }

  /** The answer cannot be translated any further, and its translator says so. */
  stop(): void {
    this.#goes("error");
    this.#attempt?.drop();
  }

  fail(error: unknown): void {
    if (this.#goes("error")) this.lose(error);
  }

  lose(error: unknown): void {
    const failure = asCallError(error);
    this.#settlement.nothing(failure instanceof GatewayError ? failure.code : failure.kind);
    this.#call.fail(failure);
  }

  #replyCount(tokens: number): void {
    const isGoogle = countedFormat(this.#llm.dialect) === "generateContent";
    this.#reply(200, isGoogle ? { totalTokens: tokens } : { input_tokens: tokens });
  }

  /** An answer of ours, in the client's dialect. */
  #reply(status: number, body: Members, headers: Readonly<Record<string, string>> = {}, errorType = ""): void {
    if (!this.#goes("head") || !this.#goes("end")) return;
    this.#settlement.nothing(errorType);
    sendJson(this.#call, status, body, headers);
  }

  #refuse(error: LlmError, headers?: Readonly<Record<string, string>>): void {
    const { errorFormat } = this.#llm.dialect;
    const said = { ...errorHeaders(errorFormat, error.status), ...headers };
    this.#reply(error.status, errorBody(errorFormat, error), said, error.code);
  }

  /** False if the event means nothing any more. */
  #goes(event: AttemptEvent): boolean {
    const next = afterEvent(this.#state, event);
    if (next === undefined) return false;
    this.#state = next;
    return true;
  }
}

export function sendJson(
  call: BackendCall,
  status: number,
  body: Members,
  extra: Readonly<Record<string, string>> = {},
): void {
  const bytes = Buffer.from(JSON.stringify(body));
  const headers = { "content-type": "application/json", "content-length": String(bytes.length), ...extra };
  call.head(status, HeaderList.of(headers));
  call.data(bytes);
  call.end();
}

function asCallError(error: unknown): GatewayError | HttpClientError {
  return error instanceof GatewayError || error instanceof HttpClientError
    ? error
    : new GatewayError("internal", { cause: error });
}
