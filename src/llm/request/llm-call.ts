/**
 * Describes an LLM request to policies and to the `ai` backend between reading the body and calling a provider. The
 * token estimate is computed on first use.
 */
import { finish, type Steps } from "../../base/sliced-work.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, type GatewayRequest, StateKey } from "../../core/exchange.ts";
import { type LlmAttributes, LlmCallAttributes } from "../../core/request-attributes.ts";
import { observeChunks } from "../../http/body.ts";
import type { Members } from "../../json/json.ts";
import type { NoSkeleton, Skeleton } from "../../json/skeleton.ts";
import {
  bytesPerToken,
  estimateRequestTokens,
  estimateSteps,
  maxOutputTokens,
  maxOutputTokensSteps,
} from "../usage/estimate-tokens.ts";
import type { Cost, Dialect } from "./dialect.ts";
import { ModelNames, modelsInJson, type RequestScan } from "./read-request.ts";

export interface LlmCall {
  readonly dialect: Dialect;
  readonly bytes: Buffer;
  readonly scan: RequestScan;
  readonly tree?: Skeleton | NoSkeleton;
  /** The outermost scope is first. */
  readonly rules: PromptRules[];
  readonly caching?: PromptCaching | undefined;
  /** Returns US dollars at the most expensive target, or undefined if the price is unknown. */
  readonly quote?: Quote | undefined;
  /** True if no target serves the model that the client names. */
  readonly isUnknownModel?: boolean;
}

/** Holds the call once the `ai` backend has read the request as one. */
export const llmCall = new StateKey<LlmCall>();

export type Quote = (inputTokens: number, outputTokens: number) => number | undefined;

/** The fields of an inner scope replace those of an outer scope. */
export interface PromptRules {
  readonly defaults?: Members | undefined;
  readonly overrides?: Members | undefined;
  /** The values that expressions returned for fields. A field is removed if its expression failed. */
  readonly computed?: ReadonlyMap<string, unknown> | undefined;
  readonly prepend?: readonly PromptMessage[] | undefined;
  readonly append?: readonly PromptMessage[] | undefined;
  readonly aliases?: ((model: string) => string | undefined) | undefined;
  readonly promptCaching?: PromptCaching | undefined;
  readonly requestGuards?: readonly TextGuard[] | undefined;
  readonly responseGuards?: readonly TextGuard[] | undefined;
  /** Shadow-mode guards report matches without changing or rejecting the call. */
  readonly watchedRequests?: readonly TextGuard[] | undefined;
  readonly watchedResponses?: readonly TextGuard[] | undefined;
  /** Webhooks run after the local guards. */
  readonly requestWebhooks?: readonly WebhookGuard[] | undefined;
  readonly responseWebhooks?: readonly WebhookGuard[] | undefined;
}

export interface PromptCaching {
  readonly system: boolean;
  readonly tools: boolean;
  readonly messages: boolean;
  readonly minTokens: number;
  readonly ttl: "5m" | "1h";
}

export interface PromptMessage {
  readonly role: string;
  readonly content: string;
}

export interface WebhookGuard {
  /** Resolves with the texts to use instead, in the same order. Rejects to block the call. */
  check(question: {
    readonly direction: "request" | "response";
    readonly model: string | undefined;
    readonly texts: readonly string[];
  }): Promise<readonly string[]>;
}

export interface TextMatch {
  readonly start: number;
  readonly end: number;
  readonly mask: string;
  /** True if no following text can invalidate the match. */
  readonly isCertain: boolean;
}

export interface TextGuard {
  readonly name: string;
  readonly action: "mask" | "reject";
  readonly rejection: { readonly status: number; readonly message: string };
  /**
   * Finds matches at or after `from`. The text before `from` is context for `^` and `\b`. A text that exceeds the time
   * budget counts as one match.
   */
  finding(text: string, from: number): Steps<readonly TextMatch[]>;
}

const NO_NAMES: readonly string[] = [];

function isCollected(name: string, model: string | undefined): boolean {
  return model !== undefined && (name === `models/${model}` || name === `tunedModels/${model}`);
}

export class LlmRequestAttributes extends LlmCallAttributes implements LlmAttributes {
  #unread: Buffer | undefined;
  #maximumSource: Buffer | undefined;
  #maximum: number | undefined;
  #estimate = 0;
  #cost: Cost = "metered";
  #needsPrice = false;
  #unsearched: Buffer | undefined;
  readonly #others: readonly string[];
  #models: readonly string[] | undefined;

  /** `others` are models named outside the JSON body. */
  constructor(
    requestModel: string | undefined,
    streaming: boolean,
    bytes: Buffer,
    others: readonly string[] = NO_NAMES,
  ) {
    super();
    if (requestModel !== undefined) this.requestModel = requestModel;
    this.#unsearched = bytes;
    this.#others = others;
    this.streaming = streaming;
    this.#unread = bytes;
    this.#maximumSource = bytes;
  }

  get estimatedTokens(): number {
    if (this.#unread !== undefined) {
      this.#estimate = estimateRequestTokens(this.#unread);
      this.#unread = undefined;
    }
    return this.#estimate;
  }

  set estimatedTokens(tokens: number) {
    this.#unread = undefined;
    this.#estimate = tokens;
  }

  get maxOutputTokens(): number | undefined {
    if (this.#maximumSource !== undefined) {
      this.#maximum = maxOutputTokens(this.#maximumSource);
      this.#maximumSource = undefined;
    }
    return this.#maximum;
  }

  *count(): Steps<void> {
    if (this.#unread !== undefined) this.estimatedTokens = yield* estimateSteps(this.#unread);
    if (this.#maximumSource === undefined) return;
    this.#maximum = yield* maxOutputTokensSteps(this.#maximumSource);
    this.#maximumSource = undefined;
  }

  *findModels(): Steps<void> {
    if (this.#unsearched === undefined) return;
    const found = new ModelNames();
    if (this.requestModel !== undefined) found.add(this.requestModel);
    for (const name of this.#others) found.add(name);
    if (this.#unsearched.length > 0) yield* modelsInJson(this.#unsearched, true, found);
    // Google's bodies may name the model of the path again with its collection prefix.
    this.#models = found.names.filter((name, i) => i === 0 || !isCollected(name, this.requestModel));
    this.#unsearched = undefined;
  }

  /**
   * Returns all models that the request names, starting with `requestModel`. Throws `GatewayError` if there are too
   * many.
   */
  static modelsOf(llm: LlmAttributes | undefined): readonly string[] {
    if (llm instanceof LlmRequestAttributes) {
      finish(llm.findModels());
      return llm.#models ?? NO_NAMES;
    }
    return llm?.requestModel === undefined ? NO_NAMES : [llm.requestModel];
  }

  static hasOtherModels(llm: LlmAttributes | undefined): boolean {
    const models = LlmRequestAttributes.modelsOf(llm);
    return models.length > 1 || (models.length === 1 && models[0] !== llm?.requestModel);
  }

  /** Throws `GatewayError` if the request names other models, which a limit by model cannot charge. */
  static requireOneModel(llm: LlmAttributes | undefined): void {
    if (LlmRequestAttributes.hasOtherModels(llm))
      throw new GatewayError("bad_request", {
        message: "the request names several models, and a limit or budget counts by model: name one",
      });
  }

  setCost(cost: Cost): void {
    this.#cost = cost;
    if (cost === "free") this.estimatedTokens = 0;
  }

  static costOf(llm: LlmAttributes | undefined): Cost {
    return llm instanceof LlmRequestAttributes ? llm.#cost : "metered";
  }

  /** A hard budget in dollars then allows only calls of models with a price. */
  static requirePrice(llm: LlmAttributes | undefined): void {
    if (llm instanceof LlmRequestAttributes) llm.#needsPrice = true;
  }

  static needsPrice(llm: LlmAttributes | undefined): boolean {
    return llm instanceof LlmRequestAttributes && llm.#needsPrice;
  }
}

export function unpricedMessage(model: string): string {
  return `the model ${JSON.stringify(model)} has no price, and a budget in dollars applies`;
}

const NO_BYTES = Buffer.alloc(0);
const NO_MODELS: readonly string[] = [];

/** Keeps attributes that are already set. The first of `models` becomes the request's model. */
export function noteSizedRequest(
  exchange: Exchange,
  cost: Cost = "metered",
  models: readonly string[] = NO_MODELS,
): LlmAttributes {
  const known = exchange.attributes.llm;
  if (known !== undefined) return known;
  const attributes = sizedAttributes(exchange.request, models);
  attributes.setCost(cost);
  exchange.attributes.llm = attributes;
  return attributes;
}

/** Notes a request whose body the gateway does not read or count, such as a WebSocket. */
export function noteUncountedRequest(exchange: Exchange, cost: Cost, models: readonly string[] = NO_MODELS): void {
  if (exchange.attributes.llm !== undefined) return;
  const attributes = new LlmRequestAttributes(models[0], false, NO_BYTES, models);
  attributes.setCost(cost);
  exchange.attributes.llm = attributes;
}

/** Throws `GatewayError` if a limit of the policy cannot know what the request costs. */
export function requireKnownCost(llm: LlmAttributes | undefined, policy: "budgets" | "rateLimit"): void {
  if (LlmRequestAttributes.costOf(llm) !== "unmetered") return;
  throw new GatewayError("unpriced_request", {
    message: `the cost of this request is unknown, and a limit of \`${policy}\` applies; the setting \`${policy}.unpriced: allow\` permits it`,
  });
}

function sizedAttributes(request: GatewayRequest, models: readonly string[]): LlmRequestAttributes {
  const { body } = request;
  const perToken = bytesPerToken(request);
  const attributes = new LlmRequestAttributes(models[0], false, NO_BYTES, models);
  const announced = body.kind === "bytes" ? body.bytes.length : body.kind === "stream" ? (body.length ?? 0) : 0;
  attributes.estimatedTokens = Math.ceil(announced / perToken);
  if (body.kind === "stream") {
    let passed = 0;
    observeChunks(body.stream, (chunk) => {
      passed += chunk.length;
      attributes.estimatedTokens = Math.ceil(passed / perToken);
    });
  }
  return attributes;
}
