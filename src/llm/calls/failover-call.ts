/**
 * One LLM call: the targets in their order, the next one when a target cannot be reached, is too slow, or answers with
 * what `failoverOn` names, as long as nothing has reached the client. A target that cannot be asked in the client's words is
 * passed over; the last answer is the client's, whatever it is. Redirects are never followed: a key must not go where
 * an answer points.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { type AttemptEvent, type AttemptState, afterEvent, isOver } from "../../http/attempt-state.ts";
import { HeaderList } from "../../http/headers.ts";
import { type HttpCall, HttpClientError, type OutgoingRequest, type ResponseHandler } from "../../http/http-client.ts";
import type { Members } from "../../json/json.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { doubt, MISSING_AWS_KEYS } from "../credentials/credential.ts";
import { CredentialError } from "../credentials/renewable.ts";
import type { FailoverRules } from "../models/failover-rules.ts";
import type { Candidate } from "../models/model-table.ts";
import type { Target, TargetTimeouts } from "../models/target.ts";
import type { Dialect, Format } from "../request/dialect.ts";
import type { LlmCall } from "../request/llm-call.ts";
import { errorBody, errorHeaders, isContextLengthError, type LlmError } from "../request/llm-errors.ts";
import { providerRequestId, retryAfterSeconds } from "../request/provider.ts";
import { estimateRequestTokens } from "../usage/estimate-tokens.ts";
import type { LlmMetrics } from "../usage/llm-metrics.ts";
import type { TapReport } from "../usage/response-usage.ts";
import { type Answer, NativeAnswer, TranslatedAnswer } from "./provider-response.ts";
import { PlanError } from "./rejections.ts";
import type { CallSettlement, Settlement } from "./settlement.ts";
import { sendParts } from "./split-request.ts";
import { type PlanEnv, planRequest, type UpstreamPlan, upstreamRequest } from "./upstream-request.ts";

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

/** The run that the attempt belongs to. */
export interface AttemptOwner {
  readonly hasNext: boolean;
  readonly rules: FailoverRules;
  readonly clock: Clock;
  /** A head as it came from the target. */
  received(status: number, headers: HeaderList): void;
  /** The target failed; the next one is asked. */
  giveUp(target: Target, failure: TargetFailure): void;
  /** The way of an answer to the client; undefined if nobody waits for it. */
  answerOf(status: number, plan: UpstreamPlan): Answer | undefined;
  refuseRedirect(): void;
  /** The answer ended or broke off. False if the run was over before. */
  finish(event: "end" | "error"): boolean;
  fail(error: unknown): void;
  /** The answer was lost while its end was handled. */
  lose(error: unknown): void;
}

export interface TargetFailure {
  /** For the log and the trace. */
  readonly reason: string;
  /** For the metric: a status or a word. */
  readonly cause: string;
  readonly retryAfterSeconds?: number | undefined;
  /** False if the request is at fault rather than the target. */
  readonly rests: boolean;
}

/** The provider was asked and reads the prompt, whether anybody waits for its answer or not: the question is charged. */
export const NOTHING_HEARD: TapReport = {
  usage: undefined,
  responseModel: undefined,
  uncountedTokens: 0,
  complete: false,
};

/** An error of that size says what it is; a longer one is passed on as it comes. */
const MAX_ERROR_BYTES = 64 * 1024;

/** A head that is not the client's yet. */
interface Held {
  readonly status: number;
  readonly headers: HeaderList;
  /** Of an error that is read before it is decided; undefined while a first byte is awaited. */
  readonly error: Buffer[] | undefined;
}

export class TargetAttempt implements ResponseHandler {
  readonly candidate: Candidate;
  readonly #owner: AttemptOwner;
  readonly #plan: UpstreamPlan;
  /** Held from the moment it is sent; nothing is called before. */
  #http: HttpCall | undefined = undefined;
  #watch: AnswerWatch | undefined = undefined;
  #held: Held | undefined = undefined;
  #heldBytes = 0;
  #answer: Answer | undefined = undefined;

  constructor(owner: AttemptOwner, candidate: Candidate, plan: UpstreamPlan) {
    this.#owner = owner;
    this.candidate = candidate;
    this.#plan = plan;
  }

  sent(http: HttpCall): void {
    this.#http = http;
    const { timeouts } = this.candidate.target;
    if (timeouts) this.#watch = new AnswerWatch(this.#owner.clock, timeouts, (detail) => this.#tooSlow(detail));
  }

  /** Nothing of it is wanted any more. */
  drop(): void {
    this.#watch?.stop();
    this.#http?.abort();
  }

  resume(): void {
    this.#watch?.resumed();
    this.#http?.resume();
  }

  /** Of a request in parts: an answer to one of them is coming. */
  heard(): void {
    this.#watch?.heard(true);
  }

  head(status: number, headers: HeaderList): void {
    const { target } = this.candidate;
    const { rules } = this.#owner;
    this.#owner.received(status, headers);
    if (status === 401 || status === 403) doubt(target.credential);
    const ownKey = target.credential.kind !== "client";
    const rests = rules.rests(status, ownKey);
    if (rules.onStatus(status, ownKey) && this.#owner.hasNext) {
      this.#giveUp({
        reason: `status ${status}`,
        cause: String(status),
        retryAfterSeconds: retryAfterSeconds(headers, this.#owner.clock.now()),
        rests,
      });
      return;
    }
    if (status >= 300 && status < 400) {
      this.drop();
      this.#owner.refuseRedirect();
      return;
    }
    const isTooLong = (status === 400 || status === 413) && rules.onContextLength && this.#owner.hasNext;
    if (isTooLong) this.#held = { status, headers, error: [] };
    else if (status < 400 && target.timeouts?.firstByteMs !== undefined)
      this.#held = { status, headers, error: undefined };
    else {
      if (rests) target.health.failed(retryAfterSeconds(headers, this.#owner.clock.now()));
      else target.health.worked();
      this.#open(status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#held) {
      const { error } = this.#held;
      error?.push(chunk);
      this.#heldBytes += chunk.length;
      if (error && this.#heldBytes <= MAX_ERROR_BYTES) return true;
      this.#release();
      if (error) return true;
    }
    const goesOn = this.#answer?.data(chunk) ?? true;
    this.#watch?.heard(goesOn);
    return goesOn;
  }

  end(trailers: readonly string[]): void {
    this.#watch?.stop();
    const error = this.#held?.error;
    if (error && isContextLengthError(Buffer.concat(error).toString("utf8")) && this.#owner.hasNext) {
      this.#giveUp({ reason: "the prompt is too long for its model", cause: "context_length", rests: false });
      return;
    }
    if (this.#held) this.#release();
    if (this.#owner.finish("end")) this.#answer?.end(trailers);
  }

  error(error: HttpClientError): void {
    this.#watch?.stop();
    const { target } = this.candidate;
    // What cannot be sent, or what we cannot take, is no fault of the target.
    const isItsFault = error.kind !== "request" && error.kind !== "internal";
    if (this.#answer) this.#breakOff(error);
    else if (isItsFault && this.#owner.hasNext)
      this.#giveUp({ reason: error.message, cause: "connection", rests: true });
    else {
      if (isItsFault) target.health.failed(undefined);
      this.#owner.fail(error);
    }
  }

  /** The client left. */
  abandon(settlement: CallSettlement): void {
    this.drop();
    if (this.#answer) this.#answer.abort();
    // What the parts of a request used was told when they were dropped.
    else if (this.#held?.error || this.#plan.more.length > 0) settlement.nothing("aborted");
    else settlement.counted(NOTHING_HEARD);
  }

  #giveUp(failure: TargetFailure): void {
    this.drop();
    this.#owner.giveUp(this.candidate.target, failure);
  }

  #open(status: number, headers: HeaderList): void {
    this.#answer = this.#owner.answerOf(status, this.#plan);
    this.#answer?.head(status, headers);
  }

  /** What was held is the client's after all. */
  #release(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    this.candidate.target.health.worked();
    this.#open(held.status, held.headers);
    for (const chunk of held.error ?? []) this.#answer?.data(chunk);
  }

  #tooSlow(detail: string): void {
    this.drop();
    const error = new GatewayError("backend_timeout", { detail });
    if (this.#answer) this.#breakOff(error);
    else if (this.#owner.hasNext)
      this.#owner.giveUp(this.candidate.target, { reason: detail, cause: "timeout", rests: true });
    else {
      this.candidate.target.health.failed(undefined);
      this.#owner.fail(error);
    }
  }

  #breakOff(error: HttpClientError | GatewayError): void {
    if (this.#owner.finish("error")) this.#answer?.fail(error);
    else this.#owner.lose(error);
  }
}

export interface Planned {
  readonly candidate: Candidate;
  /** Undefined where the gateway answers itself. */
  readonly plan: UpstreamPlan | undefined;
}

export class TargetQueue {
  /** Why the first target that was passed over could not be asked. */
  refusal: LlmError | undefined = undefined;
  /** When the first of those that were passed over because their minute is used up can be asked. */
  retryAfterSeconds: number | undefined = undefined;
  readonly #llm: LlmCall;
  readonly #request: Pick<GatewayRequest, "query" | "headers">;
  readonly #candidates: readonly Candidate[];
  readonly #env: PlanEnv;
  /** Planned, with something left out: for when no other is left. */
  readonly #later: Planned[] = [];
  #next = 0;
  #planned: Planned | undefined;

  constructor(
    llm: LlmCall,
    request: Pick<GatewayRequest, "query" | "headers">,
    candidates: readonly Candidate[],
    env: PlanEnv,
  ) {
    this.#llm = llm;
    this.#request = request;
    this.#candidates = candidates;
    this.#env = env;
  }

  /** How many may still be asked at most: some may turn out not to understand the client's words. */
  get left(): number {
    return this.#candidates.length - this.#next + this.#later.length + (this.#planned === undefined ? 0 : 1);
  }

  get hasNext(): boolean {
    return this.#peek() !== undefined;
  }

  take(): Planned | undefined {
    const planned = this.#peek();
    this.#planned = undefined;
    return planned;
  }

  #peek(): Planned | undefined {
    while (this.#planned === undefined) {
      const candidate = this.#candidates[this.#next];
      if (!candidate) {
        this.#planned = this.#later.shift();
        return this.#planned;
      }
      this.#next += 1;
      const planned = this.#plan(candidate);
      if (planned?.plan?.translation && planned.plan.context.losses.names.length > 0) this.#later.push(planned);
      else this.#planned = planned;
    }
    return this.#planned;
  }

  #plan(candidate: Candidate): Planned | undefined {
    const { quota } = candidate.target;
    if (quota?.isUsedUp) {
      this.retryAfterSeconds = Math.min(this.retryAfterSeconds ?? quota.secondsLeft, quota.secondsLeft);
      this.refusal ??= {
        status: 429,
        message: "the model's requests or tokens per minute are used up",
        code: "rate_limited",
      };
      return undefined;
    }
    const { dialect } = this.#llm;
    const { provider } = candidate.target;
    const counted = countedFormat(dialect);
    // Only the provider of the client's dialect can count; others' prompts are estimated.
    if (counted !== undefined && provider.upstreamFormat(counted, candidate.model) !== counted)
      return { candidate, plan: undefined };
    try {
      return { candidate, plan: planRequest(this.#llm, this.#request, candidate, this.#env) };
    } catch (error) {
      if (!(error instanceof PlanError)) throw error;
      this.refusal ??= error.error;
      return undefined;
    }
  }
}

/** The dialect of a question for the size of a prompt; undefined if it is something else. */
export function countedFormat({ free, format, suffix }: Dialect): Format | undefined {
  if (!free) return undefined;
  if (format === "messages") return format;
  return suffix.endsWith(":countTokens") ? "generateContent" : undefined;
}

export class AnswerWatch {
  readonly #clock: Clock;
  readonly #timeouts: TargetTimeouts;
  readonly #expired: (detail: string) => void;
  #timer: Timer | undefined;
  #heardMs = 0;
  #isIdling = false;
  #isPaused = false;
  #isOver = false;

  constructor(clock: Clock, timeouts: TargetTimeouts, expired: (detail: string) => void) {
    this.#clock = clock;
    this.#timeouts = timeouts;
    this.#expired = expired;
    const { firstByteMs } = timeouts;
    if (firstByteMs !== undefined) this.#arm(firstByteMs, () => this.#expire(`no first byte within ${firstByteMs} ms`));
  }

  /** Something of the answer came. `goesOn`: the client can take more. */
  heard(goesOn: boolean): void {
    if (this.#isOver) return;
    this.#isPaused = !goesOn;
    this.#heardMs = this.#clock.monotonicMs();
    if (this.#isIdling) return;
    this.#isIdling = true;
    this.#timer?.cancel();
    const { idleMs } = this.#timeouts;
    if (idleMs !== undefined) this.#arm(idleMs, () => this.#look(idleMs));
  }

  resumed(): void {
    if (this.#isPaused) this.heard(true);
  }

  stop(): void {
    this.#isOver = true;
    this.#timer?.cancel();
  }

  #look(idleMs: number): void {
    const silentMs = this.#isPaused ? 0 : this.#clock.monotonicMs() - this.#heardMs;
    if (silentMs >= idleMs) this.#expire(`no byte for ${idleMs} ms`);
    else this.#arm(idleMs - silentMs, () => this.#look(idleMs));
  }

  #arm(delayMs: number, callback: () => void): void {
    this.#timer = this.#clock.after(delayMs, () => {
      if (!this.#isOver) callback();
    });
  }

  #expire(detail: string): void {
    this.stop();
    this.#expired(detail);
  }
}
