/**
 * An LLM request in the `ai` backend between reading the body and calling a provider. The `ai` policies of all scopes
 * access it through `LlmRequestFacts.callOf`.
 */

import type { Steps } from "../../base/sliced-work.ts";
import type { Members } from "../../json/json.ts";
import type { NoSkeleton, Skeleton } from "../../json/skeleton.ts";
import type { Dialect } from "./dialect.ts";
import type { RequestScan } from "./read-request.ts";

export interface LlmCall {
  readonly dialect: Dialect;
  readonly bytes: Buffer;
  readonly scan: RequestScan;
  /** The parsed tree of a large request, if it was read in advance. */
  readonly tree?: Skeleton | NoSkeleton;
  /** The rules of the `ai` policies, outermost scope first. */
  readonly rules: PromptRules[];
  /** Where to set markers for the provider's prompt cache. */
  readonly caching?: PromptCaching | undefined;
  /** The cost of tokens in US dollars at the most expensive target; undefined without a price. */
  readonly quote?: Quote | undefined;
}

export type Quote = (inputTokens: number, outputTokens: number) => number | undefined;

/** The settings of an `ai` policy. Each field of an inner scope replaces that of an outer one. */
export interface PromptRules {
  readonly defaults?: Members | undefined;
  readonly overrides?: Members | undefined;
  readonly prepend?: readonly PromptMessage[] | undefined;
  readonly append?: readonly PromptMessage[] | undefined;
  readonly aliases?: ((model: string) => string | undefined) | undefined;
  readonly promptCaching?: PromptCaching | undefined;
  readonly requestGuards?: readonly TextGuard[] | undefined;
  readonly responseGuards?: readonly TextGuard[] | undefined;
  /** Guards in shadow mode, which neither change nor reject anything. */
  readonly watchedRequests?: readonly TextGuard[] | undefined;
  readonly watchedResponses?: readonly TextGuard[] | undefined;
  /** External guards, called after the local ones. */
  readonly requestWebhooks?: readonly WebhookGuard[] | undefined;
  readonly responseWebhooks?: readonly WebhookGuard[] | undefined;
}

/** Which parts of a prompt get a cache marker. */
export interface PromptCaching {
  readonly system: boolean;
  readonly tools: boolean;
  readonly messages: boolean;
  /** Shorter prompts are not marked. */
  readonly minTokens: number;
  readonly ttl: "5m" | "1h";
}

export interface PromptMessage {
  readonly role: string;
  readonly content: string;
}

/** Checks all texts of a request or response and returns the texts to continue with. */
export interface WebhookGuard {
  check(question: {
    readonly direction: "request" | "response";
    readonly model: string | undefined;
    readonly texts: readonly string[];
  }): Promise<readonly string[]>;
}

/** A match of a guard in a text. */
export interface TextMatch {
  readonly start: number;
  readonly end: number;
  /** The replacement if the guard masks. */
  readonly mask: string;
  /** Text that follows cannot undo the match. */
  readonly isCertain: boolean;
}

/** Patterns and the action for text that matches one of them. */
export interface TextGuard {
  /** Names its patterns in reports. */
  readonly name: string;
  readonly action: "mask" | "reject";
  readonly rejection: { readonly status: number; readonly message: string };
  /**
   * Finds the matches at or after `from`. The text before it is context for `^` and `\b`. Runs in steps, because text
   * may be long. A text that exceeds the budget counts as one match.
   */
  finding(text: string, from: number): Steps<readonly TextMatch[]>;
}
