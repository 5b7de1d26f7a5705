/**
 * Reading the members of a parsed request with messages that name them, the way a client sees its own body.
 */
import { isMembers, type Members } from "../../json/json.ts";
import type { EncodedData } from "./conversation.ts";
import { TranslationError } from "./translation-error.ts";

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

/** The same object without members that are undefined. */
export function compact(object: Members): Members {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** Arguments of a tool call: JSON text that must be an object. */
export function parseArguments(value: unknown, param: string): Members {
  if (value === undefined || value === "") return {};
  try {
    return members(JSON.parse(text(value, param)), param);
  } catch (error) {
    if (error instanceof TranslationError) throw error;
    throw new TranslationError(param, "must be a JSON object, as text");
  }
}

const DATA_URL = /^data:([^;,]+)(?:;[^;,]*)*;base64,(.*)$/s;

/** The parts of a data URL with base64, or undefined if it is another kind of URL. */
export function parseDataUrl(url: string, param: string): EncodedData | undefined {
  if (!url.startsWith("data:")) return undefined;
  const match = DATA_URL.exec(url);
  if (!match) throw new TranslationError(param, "a data URL must have a media type and base64 content");
  return { mediaType: (match[1] as string).toLowerCase(), data: match[2] as string };
}

/** A string that says something. */
export function textOrNothing(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** A data URL, or the address where it can be had. */
export function urlOf(source: EncodedData | { readonly url: string }): string {
  return "url" in source ? source.url : `data:${source.mediaType};base64,${source.data}`;
}
