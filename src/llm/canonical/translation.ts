/**
 * Defines the contract of a translation between a client dialect and a provider dialect.
 */

import type { Members } from "../../json/json.ts";
import type { ChatVariant } from "../request/provider.ts";
import type { Conversation } from "./conversation.ts";
import type { Losses } from "./request-fields.ts";
import type { CompleteResponse, ResponseSink } from "./response.ts";
import type { ToolNames } from "./tool-names.ts";

export interface TranslationContext {
  readonly model: string;
  readonly stream: boolean;
  readonly chat: ChatVariant;
  newId(): string;
  readonly createdSeconds: number;
  readonly includeUsage: boolean;
  readonly losses: Losses;
  readonly betas: readonly string[];
  readonly toolNames: ToolNames;
  base64Vectors?: boolean;
  parts?: number;
  parsedItems?: number;
}

export interface Translation {
  /** Splits a request that exceeds the provider's batch size. Returns undefined if no split is needed. */
  parts?(body: Members, context: TranslationContext): readonly Members[] | undefined;
  /** If the request was split, `body` is `{ "parts": [ … ] }` with all responses in order. */
  response(body: Members, context: TranslationContext): Members;
  request(body: Members, context: TranslationContext): Members;
  stream(context: TranslationContext): StreamTranslation;
  readonly counts?: {
    inputTokens(response: Members): number | undefined;
    withInputTokens(body: Members, tokens: number): Members;
  };
}

export interface StreamTranslation {
  event(type: string, data: Members): readonly OutEvent[];
  /** Called only if the provider's stream ended normally. */
  end(): readonly OutEvent[];
  /** The number of characters that the translation keeps for later events. */
  heldChars(): number;
}

export interface OutEvent {
  readonly event?: string;
  readonly data: Members | "[DONE]";
}

export interface ClientDialect {
  readRequest(body: Members, context: TranslationContext): Conversation;
  writeResponse(response: CompleteResponse, context: TranslationContext): Members;
  openStream(context: TranslationContext): StreamWriter;
}

export interface StreamWriter extends ResponseSink {
  take(): readonly OutEvent[];
  end(): void;
  /** The number of characters that the writer keeps for later events. */
  heldChars(): number;
}

export interface ProviderDialect {
  writeRequest(conversation: Conversation, context: TranslationContext): Members;
  /** May throw `UpstreamResponseError`. */
  readResponse(body: Members, sink: ResponseSink, context: TranslationContext): void;
  openStream(sink: ResponseSink, context: TranslationContext): StreamReader;
}

export interface StreamReader {
  event(type: string, data: Members): void;
  /** Throws `UpstreamResponseError` if the stream is incomplete. */
  end(): void;
}
