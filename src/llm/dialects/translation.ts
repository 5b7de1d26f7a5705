/**
 * Defines the contract of a translation between a client dialect and a provider dialect, and the canonical response
 * format. Provider dialects write complete and streamed responses into a `ResponseSink`.
 */
import type { Members } from "../../json/json.ts";
import { BracketBalance } from "../../json/json-text.ts";
import { readUsage, type Usage } from "../usage/usage.ts";
import {
  type Conversation,
  type Losses,
  type Signature,
  type ToolNames,
  UpstreamResponseError,
} from "./conversation.ts";

/** Describes how a server deviates from the chat dialect. */
export interface ChatVariant {
  readonly maxTokens: "max_tokens" | "max_completion_tokens";
  readonly topK: boolean;
  readonly user: boolean;
  readonly seed: "seed" | "random_seed";
  readonly required: "required" | "any";
}

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
  parsedChars?: number;
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

/**
 * Bounds the work and the state that a provider's response can create, because one chunk of a stream can name any index,
 * and a complete response can list any number.
 */
const MAX_CHOICES = 1_024;

export type Finish = "stop" | "length" | "toolCalls" | "filter";

/** `choice` is 0 unless the client requested several choices. `call` numbers the tool calls of a choice from 0. */
export interface ResponseSink {
  begin(id: string | undefined, model: string | undefined): void;
  text(choice: number, text: string): void;
  thought(choice: number, text: string): void;
  signed(choice: number, signature: Signature): void;
  /** The reasoning is encrypted, and only the provider can decrypt it. */
  redacted(choice: number, signature: Signature): void;
  toolCall(choice: number, call: number, id: string | undefined, name: string, signature?: Signature): void;
  toolInput(choice: number, call: number, json: string): void;
  toolEnd(choice: number, call: number): void;
  finish(choice: number, finish: Finish): void;
  usage(usage: Usage): void;
}

/** `usage` is the provider's usage object, if there is one. */
export function reportUsage(usage: unknown, sink: ResponseSink): void {
  const counted = readUsage(usage);
  if (counted) sink.usage(counted);
}

/** Reads the index of a choice. A choice without one is the first. */
export function readChoiceIndex(value: unknown): number {
  if (typeof value !== "number") return 0;
  if (Number.isInteger(value) && value >= 0 && value < MAX_CHOICES) return value;
  throw new UpstreamResponseError(
    502,
    `the provider's response has a choice with an index outside of 0 to ${MAX_CHOICES - 1}`,
  );
}

interface ToolCallPart {
  readonly kind: "toolCall";
  readonly call: number;
  readonly id: string | undefined;
  readonly name: string;
  input: string;
  readonly signature: Signature | undefined;
}

export type ResponsePart =
  | { readonly kind: "text"; text: string }
  | { readonly kind: "thought"; text: string; signature: Signature | undefined; readonly isRedacted: boolean }
  | ToolCallPart;

export interface Choice {
  readonly parts: ResponsePart[];
  finish: Finish;
}

export class CompleteResponse implements ResponseSink {
  id: string | undefined = undefined;
  model: string | undefined = undefined;
  counted: Usage | undefined = undefined;
  readonly choices: Choice[] = [];
  /** The tool calls of each choice by number. */
  readonly #calls: Map<number, ToolCallPart>[] = [];

  begin(id: string | undefined, model: string | undefined): void {
    this.id = id;
    this.model = model;
  }

  text(choice: number, text: string): void {
    if (text === "") return;
    const { parts } = this.#choice(choice);
    const last = parts.at(-1);
    if (last?.kind === "text") last.text += text;
    else parts.push({ kind: "text", text });
  }

  thought(choice: number, text: string): void {
    if (text === "") return;
    const { parts } = this.#choice(choice);
    const last = parts.at(-1);
    if (last?.kind === "thought" && !last.isRedacted && last.signature === undefined) last.text += text;
    else parts.push({ kind: "thought", text, signature: undefined, isRedacted: false });
  }

  signed(choice: number, signature: Signature): void {
    const { parts } = this.#choice(choice);
    const last = parts.at(-1);
    if (last?.kind === "thought" && !last.isRedacted && last.signature === undefined) last.signature = signature;
    else parts.push({ kind: "thought", text: "", signature, isRedacted: false });
  }

  redacted(choice: number, signature: Signature): void {
    this.#choice(choice).parts.push({ kind: "thought", text: "", signature, isRedacted: true });
  }

  toolCall(choice: number, call: number, id: string | undefined, name: string, signature?: Signature): void {
    const part: ToolCallPart = { kind: "toolCall", call, id, name, input: "", signature };
    this.#choice(choice).parts.push(part);
    this.#calls[choice]?.set(call, part);
  }

  toolInput(choice: number, call: number, json: string): void {
    const part = this.#calls[choice]?.get(call);
    if (part) part.input += json;
  }

  toolEnd(): void {
    // `CompleteResponse` does not record the end of a tool call.
  }

  finish(choice: number, finish: Finish): void {
    this.#choice(choice).finish = finish;
  }

  usage(usage: Usage): void {
    this.counted = usage;
  }

  #choice(index: number): Choice {
    if (index >= MAX_CHOICES)
      throw new UpstreamResponseError(502, `the provider's response has more than ${MAX_CHOICES} choices`);
    while (this.choices.length <= index) {
      this.choices.push({ parts: [], finish: "stop" });
      this.#calls.push(new Map());
    }
    return this.choices[index] as Choice;
  }
}

export function choiceText({ parts }: Choice): string {
  return parts.reduce((text, part) => (part.kind === "text" ? text + part.text : text), "");
}

export function choiceReasoning({ parts }: Choice): string {
  return parts.reduce((text, part) => (part.kind === "thought" ? text + part.text : text), "");
}

export interface OrderedCall {
  readonly call: number;
  readonly id: string | undefined;
  readonly name: string;
  readonly signature: Signature | undefined;
}

/** The sequencer calls `start`, then `input` any number of times, then `end` before it starts the next call. */
interface OrderedCalls {
  start(call: OrderedCall): void;
  input(json: string): void;
  end(): void;
}

interface QueuedCall extends OrderedCall {
  readonly balance: BracketBalance;
  readonly held: string[];
  heldChars: number;
  hasInput: boolean;
  isStarted: boolean;
  isOver: boolean;
}

export class ToolCallSequencer {
  readonly #out: OrderedCalls;
  /** The open calls by number, in the order in which they started. */
  readonly #queue = new Map<number, QueuedCall>();
  #heldChars = 0;

  constructor(out: OrderedCalls) {
    this.#out = out;
  }

  get isOpen(): boolean {
    return this.#queue.size > 0;
  }

  /** The length of the buffered input. */
  get heldChars(): number {
    return this.#heldChars;
  }

  start(call: OrderedCall): void {
    // Some providers do not mark the end of a call, so a new call ends the calls before it whose JSON is complete.
    this.#queue.set(call.call, {
      ...call,
      balance: new BracketBalance(),
      held: [],
      heldChars: 0,
      hasInput: false,
      isStarted: false,
      isOver: false,
    });
    this.#advance();
  }

  input(call: number, json: string): void {
    const queued = this.#queue.get(call);
    if (queued === undefined || json === "") return;
    queued.hasInput = true;
    queued.balance.push(json);
    if (queued.isStarted) this.#out.input(json);
    else {
      queued.held.push(json);
      queued.heldChars += json.length;
      this.#heldChars += json.length;
    }
    if (this.#queue.size > 1) this.#advance();
  }

  end(call: number): void {
    const queued = this.#queue.get(call);
    if (queued) queued.isOver = true;
    this.#advance();
  }

  flush(): void {
    for (const queued of this.#queue.values()) queued.isOver = true;
    this.#advance();
  }

  #advance(): void {
    for (const first of this.#queue.values()) {
      if (!first.isStarted) {
        first.isStarted = true;
        this.#heldChars -= first.heldChars;
        this.#out.start(first);
        for (const json of first.held) this.#out.input(json);
        first.held.length = 0;
      }
      const isComplete = first.isOver || (this.#queue.size > 1 && first.balance.isComplete);
      if (!isComplete) return;
      if (!first.hasInput) this.#out.input("{}");
      this.#queue.delete(first.call);
      this.#out.end();
    }
  }
}
