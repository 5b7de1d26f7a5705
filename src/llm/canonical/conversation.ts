/**
 * What a client asks a model for, in no provider's words: instructions, turns, tools, settings. Every client dialect is
 * read into this form and every provider's request is written from it, so that all pairs understand a request alike.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import type { Members } from "../../json/json.ts";

export interface EncodedData {
  readonly mediaType: string;
  /** Base64. */
  readonly data: string;
}

export type Source = EncodedData | { readonly url: string };

export interface TextPart {
  readonly kind: "text";
  readonly text: string;
  /** Anthropic's mark; Bedrock has one too, others cache by themselves. */
  readonly cacheControl?: unknown;
}

export interface ImagePart {
  readonly kind: "image";
  readonly source: Source;
  readonly cacheControl?: unknown;
}

export interface FilePart {
  readonly kind: "file";
  readonly source: Source;
  readonly name: string | undefined;
  readonly cacheControl?: unknown;
}

/** What a user or a tool can say. */
export type ContentPart = TextPart | ImagePart | FilePart;

export interface ToolCallPart {
  readonly kind: "toolCall";
  readonly id: string;
  readonly name: string;
  readonly input: Members;
  readonly signature?: Signature | undefined;
}

export interface ToolResultPart {
  readonly kind: "toolResult";
  readonly id: string;
  /** Of the tool; undefined if no call with this id came before. */
  readonly name: string | undefined;
  readonly parts: readonly ContentPart[];
  readonly isError: boolean;
  readonly cacheControl?: unknown;
}

/** Only the provider that signed a thought can read it again. */
export interface ThoughtPart {
  readonly kind: "thought";
  readonly text: string;
  readonly signature: Signature;
  readonly isRedacted: boolean;
}

export type Part = ContentPart | ToolCallPart | ToolResultPart | ThoughtPart;

export interface Turn {
  readonly role: "user" | "assistant";
  readonly parts: readonly Part[];
}

export interface Tool {
  readonly name: string;
  readonly description: string | undefined;
  /** JSON schema. */
  readonly parameters: Members;
  readonly strict: boolean | undefined;
  readonly cacheControl?: unknown;
}

export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

export type AnswerFormat =
  | { readonly kind: "json"; readonly param: string }
  | { readonly kind: "schema"; readonly param: string; readonly name: string; readonly schema: Members };

/** How much the model is to think. */
export interface Thinking {
  /** Of the client's request, for messages. */
  readonly param: string;
  /** `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`. */
  readonly effort?: string | undefined;
  readonly budgetTokens?: number | undefined;
  /** The model decides how much. */
  readonly isAdaptive?: boolean | undefined;
}

/** Settings that some providers have and others do not, with the client's name for them. */
export interface Setting {
  readonly param: string;
  readonly value: unknown;
}

export type SettingName =
  | "temperature"
  | "topP"
  | "topK"
  | "seed"
  | "count"
  | "presencePenalty"
  | "frequencyPenalty"
  | "verbosity"
  | "serviceTier";

export type Settings = Readonly<Partial<Record<SettingName, Setting>>>;

export interface Conversation {
  readonly system: readonly TextPart[];
  readonly turns: readonly Turn[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice | undefined;
  /** False: one call at a time. */
  readonly parallelTools: boolean | undefined;
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly user: string | undefined;
  readonly thinking: Thinking | undefined;
  readonly format: AnswerFormat | undefined;
  readonly settings: Settings;
}

/** Turns under construction: neighbours of one role are one turn, as most providers want it. */
export class TurnList {
  readonly turns: { readonly role: Turn["role"]; readonly parts: Part[] }[] = [];

  add(role: Turn["role"], parts: readonly Part[]): void {
    const last = this.turns.at(-1);
    if (last && last.role === role) last.parts.push(...parts);
    else this.turns.push({ role, parts: [...parts] });
  }
}

/**
 * The turns without what a provider cannot be told. A turn that is empty then is left out: every provider refuses it,
 * and the conversation would be stuck for ever.
 */
export function sayable(turns: readonly Turn[], says: (part: Part) => boolean): readonly Turn[] {
  const kept = new TurnList();
  for (const { role, parts } of turns) {
    const left = parts.filter((part) => !(part.kind === "text" && part.text === "") && says(part));
    if (left.length > 0) kept.add(role, left);
  }
  return kept.turns;
}

export function usesTools(turns: readonly Turn[]): boolean {
  return turns.some(({ parts }) => parts.some(({ kind }) => kind === "toolCall" || kind === "toolResult"));
}

/** The words of a tool's result; a dialect without a mark for failures says it in words. */
export function resultText(part: ToolResultPart, saysErrors: boolean): string {
  const said = part.parts.flatMap((one) => (one.kind === "text" ? [one.text] : [])).join("\n");
  return part.isError && !saysErrors ? `Error: ${said}` : said;
}

export type Signer = "anthropic" | "google";

export interface Signature {
  readonly signer: Signer;
  readonly value: string;
}

/** `native`: whose dialect the client speaks; its own signatures stand there as they are. */
export function writeSignature(signature: Signature, native: Signer | undefined): string {
  return signature.signer === native ? signature.value : `${signature.signer}:${signature.value}`;
}

export function readSignature(text: unknown, native: Signer | undefined): Signature | undefined {
  if (typeof text !== "string" || text === "") return undefined;
  for (const signer of ["anthropic", "google"] as const)
    if (text.startsWith(`${signer}:`)) return { signer, value: text.slice(signer.length + 1) };
  return native && { signer: native, value: text };
}

/** As in Google's own OpenAI-compatible API. */
const BUDGETS = lookupTable<number>({
  none: 0,
  minimal: 512,
  low: 1024,
  medium: 8192,
  high: 24_576,
  xhigh: 24_576,
  max: 24_576,
});

/** Undefined for a word that nobody knows. */
export function budgetOf(thinking: Thinking): number | undefined {
  return thinking.budgetTokens ?? (thinking.effort === undefined ? undefined : BUDGETS[thinking.effort]);
}

export function effortOf({ effort, budgetTokens }: Thinking): string | undefined {
  if (effort !== undefined || budgetTokens === undefined) return effort;
  if (budgetTokens === 0) return "none";
  return budgetTokens <= 2048 ? "low" : budgetTokens <= 16_384 ? "medium" : "high";
}
