/**
 * Runs an LLM call that the backend has read: applies the `ai` policies, chooses the targets that can serve it, and
 * starts a call of each target that the attempt runner moves on to.
 */

import { finish, runInSlices, SLICED_BYTES, type Steps } from "../base/sliced-work.ts";
import type { BackendRun, ResponseReceiver } from "../core/backend.ts";
import { DeferredRun } from "../core/deferred-run.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { HeaderList } from "../http/headers.ts";
import { HttpClientError } from "../http/http-client.ts";
import type { Members } from "../json/json.ts";
import { isLossless } from "../json/lossless.ts";
import type { Skeleton } from "../json/skeleton.ts";
import { hasCacheMarks } from "./dialects/prompt-cache.ts";
import { checkAll } from "./guards/guard-services.ts";
import { createShadowGuards, GuardRejection } from "./guards/guarded-text.ts";
import { applyRules, editsRequest, hasTokenNumbers, mergeRules } from "./guards/prompt-rules.ts";
import { BodyTexts } from "./guards/text-places.ts";
import type { Candidate, ConditionInput, ModelPolicies, ModelTable } from "./models/model-table.ts";
import { type FailoverOptions, ProviderCall, type ProviderCallOwner, type ProviderFailure } from "./provider-call.ts";
import type { Dialect, Format } from "./request/dialect.ts";
import {
  type LlmCall,
  LlmRequestAttributes,
  type PromptRules,
  type TextGuard,
  unpricedMessage,
} from "./request/llm-call.ts";
import {
  errorBody,
  errorHeaders,
  type LlmError,
  LlmRejection,
  MISSING_MODEL,
  modelNotFound,
  noModelFits,
  recordRejection,
  UNREADABLE_STREAM,
} from "./request/llm-errors.ts";
import { scanSteps } from "./request/read-request.ts";
import type { ResponseCache } from "./response-cache.ts";
import { createResponseGuards, type ResponseGuards } from "./response-guards.ts";
import { Settlement } from "./settlement.ts";
import {
  omitsFeatures,
  type PlanOptions,
  planRequest,
  readTree,
  requireTree,
  type UpstreamPlan,
  upstreamFormat,
} from "./upstream-request.ts";
import { estimateRequestTokens, estimateSteps } from "./usage/estimate-tokens.ts";

const FINISHED: BackendRun = { abort: () => undefined, resume: () => undefined };

export interface CallServices {
  readonly table: ModelTable;
  readonly policies: ModelPolicies | undefined;
  readonly cache: ResponseCache | undefined;
  readonly failover: FailoverOptions;
  conditions(exchange: Exchange): ConditionInput | undefined;
}

export class ModelCall {
  readonly #services: CallServices;
  readonly #exchange: Exchange;
  readonly #receiver: ResponseReceiver;
  readonly #llm: LlmCall;
  readonly #settlement: Settlement;
  #isAborted = false;

  constructor(services: CallServices, exchange: Exchange, receiver: ResponseReceiver, llm: LlmCall) {
    this.#services = services;
    this.#exchange = exchange;
    this.#receiver = receiver;
    this.#llm = llm;
    this.#settlement = new Settlement(services.failover, exchange.attributes.llm ?? {}, llm.dialect);
  }

  run(): BackendRun {
    const { failover, table } = this.#services;
    const isAborted = (): boolean => this.#isAborted;
    const applying = applyPolicies(this.#llm, failover, this.#exchange);
    if (this.#llm.bytes.length > SLICED_BYTES)
      return this.#startLater(
        runInSlices(applying, isAborted)
          .then((prepared) => applyWebhooks(prepared, failover, isAborted))
          .then((prepared) => runInSlices(withTree(prepared, table.possible(prepared.model), failover), isAborted)),
      );
    try {
      const prepared = finish(applying);
      if (prepared.rules.requestWebhooks) return this.#startLater(applyWebhooks(prepared, failover, isAborted));
      return this.#start(prepared);
    } catch (error) {
      return this.#rejectWith(error);
    }
  }

  #startLater(preparing: Promise<PreparedRequest>): BackendRun {
    const ready = preparing.then(
      (prepared) => () => this.#start(prepared),
      (error: unknown) => () => this.#rejectWith(error),
    );
    return new DeferredRun(this.#receiver, ready, () => {
      this.#isAborted = true;
      this.#settlement.unused("aborted");
    });
  }

  #start(prepared: PreparedRequest): BackendRun {
    const { table, cache, policies, conditions } = this.#services;
    const { dialect } = this.#llm;
    const { model, llm } = prepared;
    if (model === undefined && dialect.format !== "opaque" && !table.hasFixedModels) return this.#reject(MISSING_MODEL);
    const candidates = policies
      ? policies.chosen(this.#exchange, model)
      : table.candidates(model, conditions(this.#exchange));
    if (candidates === undefined) return this.#reject(modelNotFound(model));
    if (candidates.length === 0 && table.hasConditions) return this.#reject(noModelFits(model));
    const guards = createResponseGuards(prepared, dialect, this.#exchange);
    if (guards === "unreadable") return this.#reject(UNREADABLE_STREAM);
    const callProviders = (receiver: ResponseReceiver): BackendRun =>
      this.#callProviders(receiver, llm, candidates, guards);
    if (cache === undefined) return callProviders(this.#receiver);
    return cache.run(this.#exchange, this.#receiver, {
      model,
      llm,
      candidates,
      settlement: this.#settlement,
      callProviders,
      guards,
    });
  }

  #callProviders(
    receiver: ResponseReceiver,
    llm: LlmCall,
    candidates: readonly Candidate[],
    guards: ResponseGuards,
  ): BackendRun {
    const guarded = guards(receiver);
    const { failover } = this.#services;
    const targets = new ProviderTargets(failover, this.#exchange, guarded.receiver, llm, candidates, this.#settlement);
    guarded.setUpstream(targets);
    targets.callNext();
    return targets;
  }

  #rejectWith(error: unknown): BackendRun {
    if (error instanceof LlmRejection) return this.#reject(error.error);
    throw error;
  }

  #reject(error: LlmError): BackendRun {
    this.#settlement.unused(error.code ?? "");
    recordRejection(this.#exchange, error);
    const { errorFormat } = this.#llm.dialect;
    sendJson(this.#receiver, error.status, errorBody(errorFormat, error), errorHeaders(errorFormat, error.status));
    return FINISHED;
  }
}

/**
 * Plans the targets of one call on demand, in the order to try them. Targets that cannot serve the request are skipped.
 */
class ProviderTargets implements BackendRun, ProviderCallOwner {
  readonly options: FailoverOptions;
  readonly exchange: Exchange;
  readonly receiver: ResponseReceiver;
  readonly settlement: Settlement;
  readonly #llm: LlmCall;
  readonly #candidates: readonly Candidate[];
  /** These targets are called last, because their translation drops parameters. */
  readonly #lossy: PlannedTarget[] = [];
  #index = 0;
  #next: PlannedTarget | undefined = undefined;
  #rejection: LlmError | undefined = undefined;
  /** Holds the shortest time until the quota window of a skipped target ends. */
  #retryAfterSeconds: number | undefined = undefined;
  #call: ProviderCall | undefined = undefined;
  #repeated: Candidate | undefined = undefined;
  #isAborted = false;

  constructor(
    options: FailoverOptions,
    exchange: Exchange,
    receiver: ResponseReceiver,
    llm: LlmCall,
    candidates: readonly Candidate[],
    settlement: Settlement,
  ) {
    this.options = options;
    this.exchange = exchange;
    this.receiver = receiver;
    this.settlement = settlement;
    this.#llm = llm;
    this.#candidates = candidates;
  }

  /** Returns an upper bound, because planning can skip targets. */
  get left(): number {
    return this.#candidates.length - this.#index + this.#lossy.length + (this.#next === undefined ? 0 : 1);
  }

  takeNext(failure: ProviderFailure): (() => void) | undefined {
    if (!failure.repeats) {
      // A call that has a response, or waits for its credential, cannot be replaced because of the time.
      if (failure.cause === undefined && this.#call?.isAwaitingResponse !== true) return undefined;
      if (!this.hasTarget()) return undefined;
    }
    this.#leave(failure);
    return () => this.callNext();
  }

  hasTarget(): boolean {
    try {
      return this.#planNext() !== undefined;
    } catch (error) {
      // An error while planning the next target must not replace the outcome of the current one.
      this.options.logger.error("the next provider does not support the request", {
        error: String(error),
        request: this.exchange.id,
      });
      return false;
    }
  }

  #leave({ reason, cause = "timeout", retryAfterSeconds, ejects = true, repeats }: ProviderFailure): void {
    const call = this.#call;
    if (call === undefined) return;
    call.stop();
    if (repeats) {
      this.#repeated = call.candidate;
      return;
    }
    const { target } = call.candidate;
    if (ejects) target.health.recordFailure(retryAfterSeconds);
    this.options.metrics.failover(target.provider.name, cause);
    this.options.logger.warn("trying the next provider", { target: target.name, reason, request: this.exchange.id });
  }

  callNext(): void {
    this.#call = undefined;
    try {
      const next = this.#takeNext();
      if (next === undefined) {
        this.#rejectUnserved();
        return;
      }
      const { candidate, plan } = next;
      const attributes = this.exchange.attributes.llm;
      if (attributes) attributes.provider = candidate.target.provider.name;
      this.settlement.calling(candidate.model);
      if (plan === undefined) this.#estimateTokenCount(this.#llm.bytes);
      else {
        this.#call = new ProviderCall(this, candidate, plan);
        this.#call.start();
      }
    } catch (error) {
      this.fail(error);
    }
  }

  abort(): void {
    this.#isAborted = true;
    if (this.#call) this.#call.abort();
    else this.settlement.unused("aborted");
  }

  resume(): void {
    this.#call?.resume();
  }

  next(failure: ProviderFailure): boolean {
    return this.receiver.next(this, failure);
  }

  fail(error: unknown): void {
    const failure =
      error instanceof GatewayError || error instanceof HttpClientError
        ? error
        : new GatewayError("internal", { cause: error });
    this.settlement.unused(failure instanceof GatewayError ? failure.code : failure.kind);
    this.receiver.fail(failure);
  }

  reject(error: LlmError, headers?: Readonly<Record<string, string>>): void {
    const { errorFormat } = this.#llm.dialect;
    const allHeaders = { ...errorHeaders(errorFormat, error.status), ...headers };
    this.#reply(error.status, errorBody(errorFormat, error), allHeaders, error.code);
  }

  #takeNext(): PlannedTarget | undefined {
    const candidate = this.#repeated;
    if (candidate === undefined) return this.#take();
    this.#repeated = undefined;
    return { candidate, plan: planRequest(this.#llm, this.exchange.request, candidate, this.options) };
  }

  #rejectUnserved(): void {
    const rejection = this.#rejection;
    const retryAfter = this.#retryAfterSeconds;
    if (rejection === undefined) return;
    const isLimited = rejection.status === 429 && retryAfter !== undefined;
    this.reject(rejection, isLimited ? { "retry-after": String(retryAfter) } : {});
  }

  /** Returns the target that `take` will return, or undefined if no target is left. */
  #planNext(): PlannedTarget | undefined {
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

  #take(): PlannedTarget | undefined {
    const next = this.#planNext();
    this.#next = undefined;
    return next;
  }

  #plan(candidate: Candidate): PlannedTarget | undefined {
    const { quota } = candidate.target;
    if (quota?.isExhausted()) {
      const seconds = quota.secondsLeft();
      this.#retryAfterSeconds = Math.min(this.#retryAfterSeconds ?? seconds, seconds);
      this.#rejection ??= { status: 429, message: QUOTA_EXHAUSTED, code: "rate_limited" };
      return undefined;
    }
    if (!this.#hasRequiredPrice(candidate)) {
      this.#rejection ??= { status: 403, message: unpricedMessage(candidate.model), code: "unpriced_model" };
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
      return { candidate, plan: planRequest(this.#llm, this.exchange.request, candidate, this.options) };
    } catch (error) {
      if (!(error instanceof LlmRejection)) throw error;
      this.#rejection ??= error.error;
      return undefined;
    }
  }

  /** Returns false if a budget requires the price of the model, and it has none. */
  #hasRequiredPrice({ target, model }: Candidate): boolean {
    const { llm } = this.exchange.attributes;
    if (!LlmRequestAttributes.needsPrice(llm)) return true;
    const names = llm?.requestModel === undefined ? [model] : [model, llm.requestModel];
    return this.options.prices?.prices(target.provider.name, names) !== undefined;
  }

  #estimateTokenCount(bytes: Buffer): void {
    if (bytes.length <= SLICED_BYTES) this.#replyTokenCount(estimateRequestTokens(bytes));
    else
      runInSlices(estimateSteps(bytes), () => this.#isAborted)
        .then((tokens) => this.#replyTokenCount(tokens))
        .catch((error) => this.fail(error));
  }

  #replyTokenCount(tokens: number): void {
    const isGoogle = tokenCountFormat(this.#llm.dialect) === "generateContent";
    this.#reply(200, isGoogle ? { totalTokens: tokens } : { input_tokens: tokens });
  }

  #reply(status: number, body: Members, headers: Readonly<Record<string, string>> = {}, errorType = ""): void {
    this.settlement.unused(errorType);
    sendJson(this.receiver, status, body, headers);
  }
}

function sendJson(
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

const QUOTA_EXHAUSTED = "the model's requests or tokens per minute are exhausted";

/** Returns undefined unless the request counts tokens in the Messages or Gemini API. */
function tokenCountFormat({ operation, format, suffix }: Dialect): Format | undefined {
  if (operation !== "count") return undefined;
  if (format === "messages") return format;
  return suffix.endsWith(":countTokens") ? "generateContent" : undefined;
}

export interface PreparedRequest {
  readonly llm: LlmCall;
  readonly model: string | undefined;
  readonly rules: PromptRules;
}

export function requestedModel({ dialect, scan, rules: list }: LlmCall): string | undefined {
  const rules = mergeRules(list);
  const isEdited = dialect.format !== "opaque" && !scan.isForm;
  const set = isEdited ? (rules.overrides?.model ?? scan.model ?? rules.defaults?.model) : scan.model;
  const model = dialect.pathModel ?? (typeof set === "string" ? set : undefined);
  return (model !== undefined && rules.aliases?.(model)) || model;
}

/** Throws `LlmRejection` if a policy rejects the request or cannot read its body. */
function* applyPolicies(llm: LlmCall, env: PlanOptions, exchange: Exchange): Steps<PreparedRequest> {
  const rules = mergeRules(llm.rules);
  // Opaque requests, such as images and speech, have no messages, but guards check their strings.
  const applicable = llm.dialect.format === "opaque" ? { requestGuards: rules.requestGuards } : rules;
  // Prompt policies do not edit multipart forms, because form fields are not parsed into a tree.
  const edited = editsRequest(applicable) && !llm.scan.isForm ? yield* edit(llm, applicable, env) : llm;
  if (rules.watchedRequests && !edited.scan.isForm) yield* watchRequest(edited, rules.watchedRequests, env, exchange);
  const model = edited.dialect.pathModel ?? edited.scan.model;
  const caching = llm.dialect.operation === "count" ? undefined : rules.promptCaching;
  return {
    llm: caching === undefined ? edited : { ...edited, caching },
    model: (model !== undefined && rules.aliases?.(model)) || model,
    rules,
  };
}

/** Parses the body in slices if a candidate needs its tree. */
function* withTree(
  policed: PreparedRequest,
  candidates: readonly Candidate[] | undefined,
  env: PlanOptions,
): Steps<PreparedRequest> {
  const { llm } = policed;
  if (candidates === undefined || llm.scan.isForm || !candidates.some((one) => needsTree(llm, one))) return policed;
  const tree = yield* readTree(llm, env);
  return { ...policed, llm: { ...llm, tree } };
}

function needsTree(llm: LlmCall, { target, model }: Candidate): boolean {
  const { dialect, caching } = llm;
  const { provider } = target;
  const format = upstreamFormat(llm, target, model);
  if (format === undefined) return false;
  if (format !== dialect.format || provider.needsAdapting?.({ format }) === true) return true;
  if (omitsFeatures(llm, target, format)) return true;
  return caching !== undefined && hasCacheMarks(format, model);
}

function* parseTree(llm: LlmCall, env: PlanOptions, purpose: string): Steps<Skeleton> {
  return requireTree(yield* readTree(llm, env), purpose);
}

function* rewritten(llm: LlmCall, tree: Skeleton, value: Members, maker: string): Steps<LlmCall> {
  yield;
  const bytes = Buffer.concat(yield* tree.writeInSteps(value));
  yield;
  const scanned = yield* scanSteps(bytes);
  if (!scanned.ok)
    throw new GatewayError("internal", { detail: `${maker} made an invalid request: ${scanned.reason}` });
  return { ...llm, bytes, scan: scanned.scan };
}

function* edit(llm: LlmCall, rules: PromptRules, env: PlanOptions): Steps<LlmCall> {
  const tree = yield* parseTree(llm, env, "pass the prompt policies");
  try {
    if (rules.requestGuards) rejectTokenNumbers(tree.value);
    const value = yield* applyRules(tree.value, llm.dialect.format, rules, tree.resolve);
    if (value === tree.value && (yield* isLossless(llm.bytes, value))) return llm;
    return yield* rewritten(llm, tree, value, "a prompt policy");
  } catch (error) {
    throw asRejection(error);
  }
}

/**
 * Replaces strings with those that the webhook guards return. Rejects with `LlmRejection` if a guard blocks the call or
 * cannot read the body.
 */
async function applyWebhooks(
  policed: PreparedRequest,
  env: PlanOptions,
  isOver: () => boolean,
): Promise<PreparedRequest> {
  const { llm, model, rules } = policed;
  if (rules.requestWebhooks === undefined || llm.scan.isForm) return policed;
  const run = <T>(steps: Steps<T>): T | Promise<T> =>
    llm.bytes.length > SLICED_BYTES ? runInSlices(steps, isOver) : finish(steps);
  const tree = await run(parseTree(llm, env, "pass the guards"));
  rejectTokenNumbers(tree.value);
  const found = new BodyTexts(tree.value, { direction: "request", resolve: tree.resolve });
  const { texts } = found;
  try {
    const checked = await checkAll(rules.requestWebhooks, { direction: "request", model, texts });
    if (checked === texts && (await run(isLossless(llm.bytes, tree.value)))) return policed;
    return { ...policed, llm: await run(rewritten(llm, tree, found.replaced(checked), "a guard")) };
  } catch (error) {
    throw asRejection(error);
  }
}

function asRejection(error: unknown): unknown {
  if (!(error instanceof GuardRejection)) return error;
  return new LlmRejection({ status: error.status, message: error.message, code: "content_rejected" });
}

function rejectTokenNumbers(body: Members): void {
  if (!hasTokenNumbers(body)) return;
  const message = "the guards of this route cannot read a prompt of token numbers: send it as text";
  throw new LlmRejection({ status: 400, message, code: "unsupported_format" });
}

function* watchRequest(llm: LlmCall, guards: readonly TextGuard[], env: PlanOptions, exchange: Exchange): Steps<void> {
  const watch = createShadowGuards(exchange, "request");
  const tree = yield* readTree(llm, env);
  if (tree === "not JSON") watch.unread(guards, "the body is not valid JSON");
  else if ("tooLarge" in tree) watch.unread(guards, `a request ${tree.tooLarge} cannot be read`);
  else
    yield* new BodyTexts(tree.value, { direction: "request", resolve: tree.resolve }).guarded(guards, (guard) =>
      watch.found(guard),
    );
}
