/**
 * Lists the targets that can serve one LLM call, in the order to try them, and starts a call of each one that the
 * attempt runner moves on to.
 */
import { runInSlices, SLICED_BYTES } from "../base/sliced-work.ts";
import type { BackendRun, ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { HeaderList } from "../http/headers.ts";
import { HttpClientError } from "../http/http-client.ts";
import type { Members } from "../json/json.ts";
import type { Candidate } from "./models/model-table.ts";
import { type FailoverOptions, ProviderCall, type ProviderCallOwner, type ProviderFailure } from "./provider-call.ts";
import type { Dialect, Format } from "./request/dialect.ts";
import { type LlmCall, LlmRequestAttributes, unpricedMessage } from "./request/llm-call.ts";
import { errorBody, errorHeaders, type LlmError, LlmRejection } from "./request/llm-errors.ts";
import type { Settlement } from "./settlement.ts";
import { type PlanOptions, planRequest, type UpstreamPlan } from "./upstream-request.ts";
import { estimateRequestTokens, estimateSteps } from "./usage/estimate-tokens.ts";

export class ProviderTargets implements BackendRun, ProviderCallOwner {
  readonly options: FailoverOptions;
  readonly exchange: Exchange;
  readonly receiver: ResponseReceiver;
  readonly settlement: Settlement;
  readonly #llm: LlmCall;
  readonly #queue: TargetQueue;
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
    this.#queue = new TargetQueue(llm, exchange, candidates, options);
  }

  get left(): number {
    return this.#queue.left;
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
      return this.#queue.planNext() !== undefined;
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
    if (candidate === undefined) return this.#queue.take();
    this.#repeated = undefined;
    return { candidate, plan: planRequest(this.#llm, this.exchange.request, candidate, this.options) };
  }

  #rejectUnserved(): void {
    const { rejection, retryAfterSeconds: retryAfter } = this.#queue;
    if (rejection === undefined) return;
    const isLimited = rejection.status === 429 && retryAfter !== undefined;
    this.reject(rejection, isLimited ? { "retry-after": String(retryAfter) } : {});
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

type TargetOptions = PlanOptions & Pick<FailoverOptions, "prices">;

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
  readonly #options: TargetOptions;
  readonly #lossy: PlannedTarget[] = [];
  #index = 0;
  #next: PlannedTarget | undefined = undefined;

  constructor(llm: LlmCall, exchange: Exchange, candidates: readonly Candidate[], options: TargetOptions) {
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
    if (!this.#hasRequiredPrice(candidate)) {
      this.rejection ??= { status: 403, message: unpricedMessage(candidate.model), code: "unpriced_model" };
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

  /** Returns false if a budget requires the price of the model, and it has none. */
  #hasRequiredPrice({ target, model }: Candidate): boolean {
    const { llm } = this.#exchange.attributes;
    if (!LlmRequestAttributes.needsPrice(llm)) return true;
    const names = llm?.requestModel === undefined ? [model] : [model, llm.requestModel];
    return this.#options.prices?.prices(target.provider.name, names) !== undefined;
  }
}

const QUOTA_EXHAUSTED = "the model's requests or tokens per minute are exhausted";

/** Returns undefined unless the request counts tokens in the Messages or Gemini API. */
function tokenCountFormat({ operation, format, suffix }: Dialect): Format | undefined {
  if (operation !== "count") return undefined;
  if (format === "messages") return format;
  return suffix.endsWith(":countTokens") ? "generateContent" : undefined;
}
