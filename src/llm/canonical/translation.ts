/**
 * Between the dialect of a client and that of a provider: pure functions over parsed JSON, each pair put together from a
 * reader and a writer (`dialects/translate.ts`). What cannot be said in the provider's dialect is noted by name: it is
 * left out, passed as it is, or refused, as the configuration says; never dropped silently.
 */

import type { Members } from "../../json/json.ts";
import type { ChatHabits } from "../request/provider.ts";
import type { Conversation } from "./conversation.ts";
import type { Losses } from "./request-fields.ts";
import type { AnswerSink, WholeAnswer } from "./response.ts";

export interface TranslationContext {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** Of chat requests that we write. */
  readonly chat: ChatHabits;
  /** A random id for answers that come without one, and for tool calls. */
  newId(): string;
  readonly createdSeconds: number;
  /** The client asked for usage in its stream. */
  readonly includeUsage: boolean;
  readonly losses: Losses;
  /** Anthropic's beta features that the client asked for. */
  readonly betas: readonly string[];
  /** Tools of the request whose input is a text and not an object (Responses' custom tools). */
  readonly textTools: Set<string>;
  /** Embeddings: the client wants vectors as text. */
  base64Vectors?: boolean;
  /** How many answers come together, where the provider is asked in parts. */
  parts?: number;
}

export interface Translation {
  /** Where the provider takes less at once than clients ask for: requests of the client's form, asked one by one. */
  parts?(body: Members, context: TranslationContext): readonly Members[] | undefined;
  /** Of a request in parts, the answers to all of them: `{ "parts": [ … ] }`, in their order. */
  response(body: Members, context: TranslationContext): Members;
  request(body: Members, context: TranslationContext): Members;
  stream(context: TranslationContext): StreamTranslation;
  /** Where the provider's answer has no usage that is found as it goes by (embeddings). */
  readonly counts?: {
    /** undefined if the provider does not say. */
    inputTokens(answer: Members): number | undefined;
    /** The client's answer with the count. */
    tell(body: Members, tokens: number): Members;
  };
}

/** One stream, event by event. */
export interface StreamTranslation {
  /** `type` is the name of the event where the dialect has one. */
  event(type: string, data: Members): readonly OutEvent[];
  /** The provider's stream ended as it should. */
  end(): readonly OutEvent[];
}

export interface OutEvent {
  readonly event?: string;
  readonly data: Members | "[DONE]";
}

/** A dialect as its clients speak it. */
export interface ClientDialect {
  readRequest(body: Members, context: TranslationContext): Conversation;
  writeAnswer(answer: WholeAnswer, context: TranslationContext): Members;
  openStream(context: TranslationContext): StreamWriter;
}

export interface StreamWriter extends AnswerSink {
  /** What was written since it was last asked. */
  take(): readonly OutEvent[];
  /** The provider's stream ended as it should. */
  end(): void;
}

/** A dialect as its providers speak it. */
export interface ProviderDialect {
  writeRequest(conversation: Conversation, context: TranslationContext): Members;
  /** Throws UpstreamAnswerError for what is no answer. */
  readAnswer(body: Members, sink: AnswerSink, context: TranslationContext): void;
  openStream(sink: AnswerSink, context: TranslationContext): StreamReader;
}

export interface StreamReader {
  event(type: string, data: Members): void;
  /** Throws UpstreamAnswerError if it ended in the middle. */
  end(): void;
}
