/**
 * Parses arbitrary JSON, optionally with a limit. The JSON may have a `__proto__` member. Copy members with
 * `putMember`, because an assignment to `__proto__` replaces the prototype.
 */

import { exceedsTokens } from "./parse-cost.ts";
import { OPEN_BRACE, SPACE } from "./syntax.ts";

export type Members = Readonly<Record<string, unknown>>;

export function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function parseMembers(text: string): Members | undefined {
  // Rejects other strings, such as the `[DONE]` of a stream, without the cost of an exception.
  if (!beginsObject(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isMembers(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function beginsObject(text: string): boolean {
  let at = 0;
  while (text.charCodeAt(at) <= SPACE) at += 1;
  return text.charCodeAt(at) === OPEN_BRACE;
}

export function parseValue(bytes: Buffer | undefined): unknown {
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}

export function putMember(object: Record<string, unknown>, name: string, value: unknown): void {
  if (name === "__proto__")
    Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
  else object[name] = value;
}

/** Limits the time to parse a document. See parse-cost.ts for the unit. */
export const MAX_DOCUMENT_TOKENS = 50_000;

/** Throws an Error whose message is a predicate, such as `is not JSON`. */
export function parseBounded(text: string, maxTokens = MAX_DOCUMENT_TOKENS): unknown {
  if (exceedsTokens(text, maxTokens)) throw new Error(`has more than ${maxTokens} values and names`);
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("is not JSON");
  }
}

export function parseBoundedObject(bytes: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parseBounded(bytes.toString("utf8"));
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}
