/**
 * Defines the canonical request format, into which client dialects are parsed and from which provider requests are
 * built, and reads and writes the fields of requests.
 */

import { createHash } from "node:crypto";
import { ExpectedError } from "../../base/errors.ts";
import { lookupTable } from "../../base/lookup-table.ts";
import { InputError, type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { type ParsedTexts, readCounted } from "../../json/read-json.ts";

interface EncodedData {
  readonly mediaType: string;
  readonly data: string;
}

export type Source = EncodedData | { readonly url: string };

export interface TextPart {
  readonly kind: "text";
  readonly text: string;
  readonly cacheControl?: unknown;
}

interface ImagePart {
  readonly kind: "image";
  readonly source: Source;
  readonly cacheControl?: unknown;
}

interface FilePart {
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
interface ThoughtPart {
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
interface Setting {
  readonly param: string;
  readonly value: unknown;
}

type SettingName =
  | "temperature"
  | "topP"
  | "topK"
  | "seed"
  | "count"
  | "presencePenalty"
  | "frequencyPenalty"
  | "verbosity"
  | "serviceTier";

type Settings = Readonly<Partial<Record<SettingName, Setting>>>;

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

type Signer = "anthropic" | "google";

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

/** Some providers limit tool names to 64 characters or reject the characters in `UNSAFE`. */
const FLAT_NAME_CHARS = 64;
const UNSAFE = /[^A-Za-z0-9_-]/g;
const HASH_CHARS = 12;

interface ClientToolName {
  readonly name: string;
  readonly namespace?: string;
}

export class ToolNames {
  /** Contains the flat names of custom tools, whose input is a string instead of an object. */
  readonly #custom = new Set<string>();
  readonly #originals = new Map<string, ClientToolName>();

  /** Keeps the name of a tool without a namespace. All of them must be reserved before the first call of `flatten`. */
  reserve(name: string): void {
    this.#originals.set(name, { name });
  }

  /** A hash is appended to a name that is too long, has unsafe characters, or belongs to another tool. */
  flatten(namespace: string, name: string): string {
    const plain = `${namespace}__${name}`;
    const isUsable =
      plain.length <= FLAT_NAME_CHARS && plain.search(UNSAFE) === -1 && this.#isFree(plain, namespace, name);
    const flat = isUsable ? plain : hashedName(plain, namespace, name);
    this.#originals.set(flat, { name, namespace });
    return flat;
  }

  original(flat: string): ClientToolName {
    return this.#originals.get(flat) ?? { name: flat };
  }

  addCustom(flat: string): void {
    this.#custom.add(flat);
  }

  isCustom(flat: string): boolean {
    return this.#custom.has(flat);
  }

  #isFree(flat: string, namespace: string, name: string): boolean {
    const owner = this.#originals.get(flat);
    return owner === undefined || (owner.namespace === namespace && owner.name === name);
  }
}

function hashedName(plain: string, namespace: string, name: string): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([namespace, name]))
    .digest("hex")
    .slice(0, HASH_CHARS);
  return `${plain.replace(UNSAFE, "_").slice(0, FLAT_NAME_CHARS - HASH_CHARS - 1)}_${hash}`;
}

const TOOL_ARGUMENTS = peerInput("client/llm-tool-arguments");

export function members(value: unknown, param: string): Members {
  if (!isMembers(value)) throw new TranslationError(param, "must be an object");
  return value;
}

export function list(value: unknown, param: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new TranslationError(param, "must be a list");
  return value;
}

/** An absent list is empty. */
export function optionalList(value: unknown, param: string): readonly unknown[] {
  return value === undefined || value === null ? [] : list(value, param);
}

export function text(value: unknown, param: string): string {
  if (typeof value !== "string") throw new TranslationError(param, "must be a string");
  return value;
}

export function optionalText(value: unknown, param: string): string | undefined {
  return value === undefined || value === null ? undefined : text(value, param);
}

export function optionalNumber(value: unknown, param: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "number" || !Number.isFinite(value)) throw new TranslationError(param, "must be a number");
  return value;
}

export function optionalBoolean(value: unknown, param: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "boolean") throw new TranslationError(param, "must be true or false");
  return value;
}

/** Providers reject some empty lists and objects, so these are omitted. */
export function unlessEmpty<T extends Members | readonly unknown[]>(value: T): T | undefined {
  return (Array.isArray(value) ? value : Object.keys(value)).length === 0 ? undefined : value;
}

export function compact(object: Members): Members {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** Returns undefined if the text is not a JSON object, or exceeds a limit. */
export function readToolMembers(input: PeerInput<"JSON">, json: string, parsed: ParsedTexts): Members | undefined {
  // Rejects prose without the cost of an exception.
  if (!/^\s*\{/.test(json)) return undefined;
  try {
    const value = readCounted(input, json, parsed);
    return isMembers(value) ? value : undefined;
  } catch (error) {
    if (error instanceof InputError) return undefined;
    throw error;
  }
}

export function parseArguments(value: unknown, param: string, parsed: ParsedTexts): Members {
  if (value === undefined || value === "") return {};
  const json = text(value, param);
  try {
    return members(readCounted(TOOL_ARGUMENTS, json, parsed), param);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new TranslationError(param, error.problem === "form" ? "must be a JSON object, as text" : error.message);
  }
}

const DATA_URL = /^data:([^;,]+)(?:;[^;,]*)*;base64,(.*)$/s;

export function parseDataUrl(url: string, param: string): EncodedData | undefined {
  if (!url.startsWith("data:")) return undefined;
  const match = DATA_URL.exec(url);
  if (!match) throw new TranslationError(param, "a data URL must have a media type and base64 content");
  return { mediaType: (match[1] as string).toLowerCase(), data: match[2] as string };
}

export function nonEmptyString(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

export function toUrl(source: EncodedData | { readonly url: string }): string {
  return "url" in source ? source.url : `data:${source.mediaType};base64,${source.data}`;
}

export function readSettings(settings: Readonly<Record<SettingName, Setting | undefined>> | Settings): Settings {
  const given: Partial<Record<SettingName, Setting>> = {};
  for (const [name, setting] of Object.entries(settings))
    if (setting !== undefined && setting.value !== undefined && setting.value !== null)
      given[name as SettingName] = setting;
  return given;
}

/** Reports settings without an entry in `names` as unsupported. */
export function writeSettings(
  settings: Settings,
  names: Readonly<Partial<Record<SettingName, string>>>,
  losses: Losses,
): Members {
  const written: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(settings) as [SettingName, Setting][]) {
    const providerName = names[name];
    if (providerName === undefined) losses.lose(setting.param, setting.value);
    else written[providerName] = setting.value;
  }
  return written;
}

export type Unsupported = "drop" | "pass" | "refuse";

export const NOT_SUPPORTED = "is not supported by the provider of this model";
/** These limits bound the response header that lists dropped parameters. */
const MAX_NAMED = 20;
const MAX_NAME_CHARS = 80;

export class Losses {
  readonly #how: Unsupported;
  readonly #names = new Set<string>();
  readonly #passed: Record<string, unknown> = Object.create(null);

  constructor(how: Unsupported) {
    this.#how = how;
  }

  lose(param: string, value: unknown, message = NOT_SUPPORTED): void {
    if (this.#how === "refuse") throw new TranslationError(param, message);
    // Nested parameters have no equivalent position in the provider's request.
    if (this.#how === "pass" && !/[.[]/.test(param)) this.#passed[param] = value;
    // Clients control these names, so characters that are unsafe in a header are replaced.
    else if (this.#names.size < MAX_NAMED) this.#names.add(param.slice(0, MAX_NAME_CHARS).replace(/[^\w.[\]$-]/g, "?"));
  }

  get names(): readonly string[] {
    return [...this.#names];
  }

  passInto(body: Members): Members {
    return { ...this.#passed, ...body };
  }
}

/** Thrown for a request that is invalid or that the provider's dialect cannot express. */
export class TranslationError extends ExpectedError {
  readonly param: string;

  constructor(param: string, message: string) {
    super(message);
    this.name = "TranslationError";
    this.param = param;
  }
}

/** Thrown for an invalid provider response, or for an error inside a stream. */
export class UpstreamResponseError extends ExpectedError {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "UpstreamResponseError";
    this.status = status;
  }
}

export const ENDED_EARLY = "the provider's stream ended early";
