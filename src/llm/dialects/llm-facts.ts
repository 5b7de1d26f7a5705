/**
 * The facts of one LLM request, one object of one shape for every request. The estimate is made when a limit asks
 * for it, and only once: most requests are under no token limit. What only backend and policies may see is private.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { Steps } from "../../lib/process/turns.ts";
import { estimateRequestTokens, estimateSteps } from "../usage/estimate-request.ts";
import { outputMaximum, outputMaximumSteps } from "../usage/output-maximum.ts";
import type { LlmCall } from "./llm-call.ts";

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

  constructor(requestModel: string | undefined, streaming: boolean, bytes: Buffer, call?: LlmCall) {
    if (requestModel !== undefined) this.requestModel = requestModel;
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
