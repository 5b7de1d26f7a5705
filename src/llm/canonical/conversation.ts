/**
 * Defines the canonical request format. Client dialects are parsed into it, and provider requests are built from it.
 */

import { lookupTable } from "../../base/lookup-table.ts";
import type { Members } from "../../json/json.ts";

export interface EncodedData {
  readonly mediaType: string;
  readonly data: string;
}

export type Source = EncodedData | { readonly url: string };

export interface TextPart {
  readonly kind: "text";
  readonly text: string;
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
  readonly name: string | undefined;
  readonly parts: readonly ContentPart[];
  readonly isError: boolean;
  readonly cacheControl?: unknown;
}

/** Only the provider that signed the reasoning accepts it back. */
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
  readonly parameters: Members;
  readonly strict: boolean | undefined;
  readonly cacheControl?: unknown;
}

export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

export type ResponseFormat =
  | { readonly kind: "json"; readonly param: string }
  | { readonly kind: "schema"; readonly param: string; readonly name: string; readonly schema: Members };

export interface Thinking {
  readonly param: string;
  readonly effort?: string | undefined;
  readonly budgetTokens?: number | undefined;
  readonly isAdaptive?: boolean | undefined;
}

/**
 * A setting is rejected, dropped, or passed through under the client's parameter name if the provider does not support
 * it.
 */
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
  readonly parallelTools: boolean | undefined;
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly user: string | undefined;
  readonly thinking: Thinking | undefined;
  readonly format: ResponseFormat | undefined;
  readonly settings: Settings;
}

/** Merges adjacent turns of the same role, because some providers reject them. */
export class TurnList {
  readonly turns: { readonly role: Turn["role"]; readonly parts: Part[] }[] = [];

  add(role: Turn["role"], parts: readonly Part[]): void {
    const last = this.turns.at(-1);
    if (last && last.role === role) last.parts.push(...parts);
    else this.turns.push({ role, parts: [...parts] });
  }
}

/** Removes unsupported parts, empty text, and turns without remaining parts. */
export function keepSupportedParts(turns: readonly Turn[], isSupported: (part: Part) => boolean): readonly Turn[] {
  const kept = new TurnList();
  for (const { role, parts } of turns) {
    const left = parts.filter((part) => !(part.kind === "text" && part.text === "") && isSupported(part));
    if (left.length > 0) kept.add(role, left);
  }
  return kept.turns;
}

export function usesTools(turns: readonly Turn[]): boolean {
  return turns.some(({ parts }) => parts.some(({ kind }) => kind === "toolCall" || kind === "toolResult"));
}

/** Dialects without an error flag get an `Error:` prefix on the result of a failed tool. */
export function resultText(part: ToolResultPart, hasErrorFlag: boolean): string {
  const text = part.parts.flatMap((one) => (one.kind === "text" ? [one.text] : [])).join("\n");
  return part.isError && !hasErrorFlag ? `Error: ${text}` : text;
}

export type Signer = "anthropic" | "google";

export interface Signature {
  readonly signer: Signer;
  readonly value: string;
}

/** Prefixes a signature with its signer, unless the signer is `native`, the provider that defines the field. */
export function writeSignature(signature: Signature, native: Signer | undefined): string {
  return signature.signer === native ? signature.value : `${signature.signer}:${signature.value}`;
}

export function readSignature(text: unknown, native: Signer | undefined): Signature | undefined {
  if (typeof text !== "string" || text === "") return undefined;
  for (const signer of ["anthropic", "google"] as const)
    if (text.startsWith(`${signer}:`)) return { signer, value: text.slice(signer.length + 1) };
  return native && { signer: native, value: text };
}

/** The budgets of `low`, `medium`, and `high` are those of Google's OpenAI-compatible API. */
const BUDGETS = lookupTable<number>({
  none: 0,
  minimal: 512,
  low: 1024,
  medium: 8192,
  high: 24_576,
  xhigh: 24_576,
  max: 24_576,
});

export function thinkingBudget(thinking: Thinking): number | undefined {
  return thinking.budgetTokens ?? (thinking.effort === undefined ? undefined : BUDGETS[thinking.effort]);
}

export function thinkingEffort({ effort, budgetTokens }: Thinking): string | undefined {
  if (effort !== undefined || budgetTokens === undefined) return effort;
  if (budgetTokens === 0) return "none";
  return budgetTokens <= 2048 ? "low" : budgetTokens <= 16_384 ? "medium" : "high";
}
