/**
 * Defines the canonical response format. Provider dialects write complete and streamed responses into a `ResponseSink`.
 */
import type { Usage } from "../usage/usage.ts";
import type { Signature } from "./conversation.ts";
import { UpstreamResponseError } from "./request-fields.ts";

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
