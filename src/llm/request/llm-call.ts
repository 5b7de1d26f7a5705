/**
 * Describes an LLM request to the `ai` backend between reading the body and calling a provider.
 */

import type { Steps } from "../../base/sliced-work.ts";
import { StateKey } from "../../core/exchange.ts";
import type { Members } from "../../json/json.ts";
import type { NoSkeleton, Skeleton } from "../../json/skeleton.ts";
import type { Dialect } from "./dialect.ts";
import type { RequestScan } from "./read-request.ts";

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
