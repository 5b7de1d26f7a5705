/**
 * Reads the fields of client requests with errors that name the parameter, and collects the parameters that the
 * provider does not support.
 */

import { ExpectedError } from "../../base/errors.ts";
import { InputError, type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { type ParsedTexts, readCounted } from "../../json/read-json.ts";
import type { EncodedData, Setting, SettingName, Settings } from "./conversation.ts";

const TOOL_ARGUMENTS = peerInput("client/llm-tool-arguments");

export function members(value: unknown, param: string): Members {
  if (!isMembers(value)) throw new TranslationError(param, "must be an object");
  return value;
}

export function list(value: unknown, param: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new TranslationError(param, "must be a list");
  return value;
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
