/**
 * An LLM request as the `ai` backend holds it between reading the body and calling a provider, where the `ai`
 * policies of all scopes find it (`LlmRequestFacts.callOf`).
 */

import type { Steps } from "../../base/turns.ts";
import type { Members } from "../../json/json.ts";
import type { NoSkeleton, Skeleton } from "../../json/skeleton.ts";
import type { Dialect } from "./dialect.ts";
import type { RequestScan } from "./read-request.ts";

export interface LlmCall {
  readonly dialect: Dialect;
  readonly bytes: Buffer;
  readonly scan: RequestScan;
  /** The tree of a large request, where it was read before it is needed. */
  readonly tree?: Skeleton | NoSkeleton;
  /** The rules of the `ai` policies on the way, outermost scope first. */
  readonly rules: PromptRules[];
  /** Where the provider's prompt cache is to be told what to keep. */
  readonly caching?: PromptCaching | undefined;
  /** What so many tokens of its model cost in US dollars, at the dearest of its targets; undefined if there is no price. */
  readonly quote?: Quote | undefined;
}

export type Quote = (inputTokens: number, outputTokens: number) => number | undefined;

/** What an `ai` policy asks for; each field of an inner scope replaces that of an outer one. */
export interface PromptRules {
  readonly defaults?: Members | undefined;
  readonly overrides?: Members | undefined;
  readonly prepend?: readonly PromptMessage[] | undefined;
  readonly append?: readonly PromptMessage[] | undefined;
  readonly aliases?: ((model: string) => string | undefined) | undefined;
  readonly promptCaching?: PromptCaching | undefined;
  readonly requestGuards?: readonly TextGuard[] | undefined;
  readonly responseGuards?: readonly TextGuard[] | undefined;
  /** Guards in shadow mode: they change and reject nothing. */
  readonly watchedRequests?: readonly TextGuard[] | undefined;
  readonly watchedResponses?: readonly TextGuard[] | undefined;
  /** Guards that somebody else runs, after those above. */
  readonly requestWebhooks?: readonly WebhookGuard[] | undefined;
  readonly responseWebhooks?: readonly WebhookGuard[] | undefined;
}

/** Which parts of a prompt get a mark for the provider's cache. */
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

/** Judges all texts of a request or answer; the texts to go on with. */
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
  /** Takes the place of the match if the guard masks. */
  readonly mask: string;
  /** It is a match whatever follows the text. */
  readonly isCertain: boolean;
}

/** Patterns, and what happens to a text that matches one of them. */
export interface TextGuard {
  /** Its patterns, for reports. */
  readonly name: string;
  readonly action: "mask" | "reject";
  readonly rejection: { readonly status: number; readonly message: string };
  /**
   * The matches at or after `from`; what stands before it decides about `^` and `\b`. In steps, because a text may be long.
   * A text that cannot be read within the budget is one match.
   */
  finding(text: string, from: number): Steps<readonly TextMatch[]>;
}
