/**
 * The contract of a translation between a client dialect and a provider dialect: pure functions over parsed JSON,
 * composed from a reader and a writer (`dialects/translate.ts`). A parameter that the provider does not support is
 * dropped and reported, passed through, or rejected, as configured; it is never dropped silently.
 */

import type { Members } from "../../json/json.ts";
import type { ChatHabits } from "../request/provider.ts";
import type { Conversation } from "./conversation.ts";
import type { Losses } from "./request-fields.ts";
import type { CompleteResponse, ResponseSink } from "./response.ts";

export interface TranslationContext {
  /** The provider's name for the model. */
  readonly model: string;
  readonly stream: boolean;
  /** Variations of the chat dialect for outgoing requests. */
  readonly chat: ChatHabits;
  /** Creates a random id for responses and tool calls that have none. */
  newId(): string;
  readonly createdSeconds: number;
  /** The client requested usage in its stream. */
  readonly includeUsage: boolean;
  readonly losses: Losses;
  /** Anthropic beta features that the client requested. */
  readonly betas: readonly string[];
  /** Tools whose input is a string instead of an object (custom tools of the Responses API). */
  readonly textTools: Set<string>;
  /** Embeddings only: the client requested base64 vectors. */
  base64Vectors?: boolean;
  /** The number of responses to combine when the request was split. */
  parts?: number;
}

export interface Translation {
  /** Splits a request that exceeds the provider's batch size into requests that are sent one by one. */
  parts?(body: Members, context: TranslationContext): readonly Members[] | undefined;
  /** For a split request, `body` is `{ "parts": [ … ] }` with all responses in order. */
  response(body: Members, context: TranslationContext): Members;
  request(body: Members, context: TranslationContext): Members;
  stream(context: TranslationContext): StreamTranslation;
  /** For responses whose usage the stream reader cannot find (embeddings). */
  readonly counts?: {
    /** Undefined if the provider does not report it. */
    inputTokens(response: Members): number | undefined;
    /** Adds the count to the client's response. */
    withInputTokens(body: Members, tokens: number): Members;
  };
}

/** Translates one stream, event by event. */
export interface StreamTranslation {
  /** `type` is the name of the event where the dialect has one. */
  event(type: string, data: Members): readonly OutEvent[];
  /** The provider's stream ended normally. */
  end(): readonly OutEvent[];
}

export interface OutEvent {
  readonly event?: string;
  readonly data: Members | "[DONE]";
}

/** The client side of a dialect. */
export interface ClientDialect {
  readRequest(body: Members, context: TranslationContext): Conversation;
  writeResponse(response: CompleteResponse, context: TranslationContext): Members;
  openStream(context: TranslationContext): StreamWriter;
}

export interface StreamWriter extends ResponseSink {
  /** Returns and clears the pending events. */
  take(): readonly OutEvent[];
  /** The provider's stream ended normally. */
  end(): void;
}

/** The provider side of a dialect. */
export interface ProviderDialect {
  writeRequest(conversation: Conversation, context: TranslationContext): Members;
  /** Throws UpstreamResponseError if the body is not a valid response. */
  readResponse(body: Members, sink: ResponseSink, context: TranslationContext): void;
  openStream(sink: ResponseSink, context: TranslationContext): StreamReader;
}

export interface StreamReader {
  event(type: string, data: Members): void;
  /** Throws UpstreamResponseError if the stream is incomplete. */
  end(): void;
}
