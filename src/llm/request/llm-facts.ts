/**
 * The facts of one LLM request, one object of one shape for every request. The estimate is made when a limit asks
 * for it, and only once: most requests are under no token limit. What only backend and policies may see is private.
 */
import { finish, type Steps } from "../../base/turns.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import { observeChunks } from "../../http/body.ts";
import { bytesPerToken, estimateRequestTokens, estimateSteps } from "../usage/estimate-tokens.ts";
import { outputMaximum, outputMaximumSteps } from "../usage/max-output-tokens.ts";
import type { LlmCall } from "./llm-call.ts";
import { ModelNames, modelsInJson } from "./named-models.ts";

const NO_NAMES: readonly string[] = [];

function isCollected(name: string, model: string | undefined): boolean {
  return model !== undefined && (name === `models/${model}` || name === `tunedModels/${model}`);
}

export class LlmRequestFacts implements LlmFacts {
  requestModel?: string;
  responseModel?: string;
  providerRequestId?: string;
  provider?: string;
  streaming?: boolean;
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  cachedInputTokens?: number;
  cacheCreationInputTokens?: number;
  reasoningTokens?: number;
  cost?: number;
  providerCalls?: number;
  #unread: Buffer | undefined;
  #asked: Buffer | undefined;
  #maximum: number | undefined;
  #estimate = 0;
  #call: LlmCall | undefined;
  #isFree = false;
  /** The JSON whose models were not searched for yet. */
  #unsearched: Buffer | undefined;
  readonly #others: readonly string[];
  #models: readonly string[] | undefined;

  /** `others`: further models that are named outside of the JSON, in the address or in a form. */
  constructor(
    requestModel: string | undefined,
    streaming: boolean,
    bytes: Buffer,
    call?: LlmCall,
    others: readonly string[] = NO_NAMES,
  ) {
    if (requestModel !== undefined) this.requestModel = requestModel;
    this.#unsearched = bytes;
    this.#others = others;
    this.streaming = streaming;
    this.#unread = bytes;
    this.#asked = bytes;
    this.#call = call;
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
    if (this.#asked !== undefined) {
      this.#maximum = outputMaximum(this.#asked);
      this.#asked = undefined;
    }
    return this.#maximum;
  }

  /** Reads in steps what the two counts above would read at once. */
  *count(): Steps<void> {
    if (this.#unread !== undefined) this.estimatedTokens = yield* estimateSteps(this.#unread);
    if (this.#asked === undefined) return;
    this.#maximum = yield* outputMaximumSteps(this.#asked);
    this.#asked = undefined;
  }

  /** Finds in steps the models that `modelsOf` would find at once. */
  *findModels(): Steps<void> {
    if (this.#unsearched === undefined) return;
    const found = new ModelNames();
    if (this.requestModel !== undefined) found.add(this.requestModel);
    for (const name of this.#others) found.add(name);
    if (this.#unsearched.length > 0) yield* modelsInJson(this.#unsearched, true, found);
    // Google's bodies repeat the model of the path with its collection.
    this.#models = found.names.filter((name, i) => i === 0 || !isCollected(name, this.requestModel));
    this.#unsearched = undefined;
  }

  /** Every model that the request names, that of `requestModel` first. Throws a refusal if there are too many. */
  static modelsOf(llm: LlmFacts | undefined): readonly string[] {
    if (llm instanceof LlmRequestFacts) {
      finish(llm.findModels());
      return llm.#models ?? NO_NAMES;
    }
    return llm?.requestModel === undefined ? NO_NAMES : [llm.requestModel];
  }

  /** Whether it names models that `requestModel` does not show. */
  static hasOtherModels(llm: LlmFacts | undefined): boolean {
    const models = LlmRequestFacts.modelsOf(llm);
    return models.length > 1 || (models.length === 1 && models[0] !== llm?.requestModel);
  }

  /** For limits and budgets that count by model: of several, none could be charged rightly. */
  static requireOneModel(llm: LlmFacts | undefined): void {
    if (LlmRequestFacts.hasOtherModels(llm))
      throw new GatewayError("bad_request", {
        message: "the request names several models, and a limit or budget counts by model: name one",
      });
  }

  /** It counts tokens, lists or stores something: no model works for it. */
  makeFree(): void {
    this.#isFree = true;
    this.estimatedTokens = 0;
  }

  static isFree(llm: LlmFacts | undefined): boolean {
    return llm instanceof LlmRequestFacts && llm.#isFree;
  }

  /** The request as the `ai` backend holds it, where that backend answers. */
  static callOf(exchange: Exchange): LlmCall | undefined {
    const { llm } = exchange.facts;
    return llm instanceof LlmRequestFacts ? llm.#call : undefined;
  }
}

const NO_BYTES = Buffer.alloc(0);
const NO_MODELS: readonly string[] = [];

/** Notes the facts, unless an earlier attempt has. `models`: what the address or a form names, the request's model first. */
export function noteSizedRequest(exchange: Exchange, models: readonly string[] = NO_MODELS): LlmFacts {
  const facts = exchange.facts.llm ?? sizedFacts(exchange.request, models);
  exchange.facts.llm = facts;
  return facts;
}

/** Of what is only stored: it needs a budget that is not used up, and costs nothing. */
export function noteFreeRequest(exchange: Exchange, models: readonly string[] = NO_MODELS): void {
  if (exchange.facts.llm !== undefined) return;
  const facts = new LlmRequestFacts(models[0], false, NO_BYTES, undefined, models);
  facts.makeFree();
  exchange.facts.llm = facts;
}

function sizedFacts(request: GatewayRequest, models: readonly string[]): LlmFacts {
  const { body } = request;
  const perToken = bytesPerToken(request);
  const facts = new LlmRequestFacts(models[0], false, NO_BYTES, undefined, models);
  const announced = body.kind === "bytes" ? body.bytes.length : body.kind === "stream" ? (body.length ?? 0) : 0;
  facts.estimatedTokens = Math.ceil(announced / perToken);
  if (body.kind === "stream") {
    let passed = 0;
    observeChunks(body.stream, (chunk) => {
      passed += chunk.length;
      facts.estimatedTokens = Math.ceil(passed / perToken);
    });
  }
  return facts;
}
