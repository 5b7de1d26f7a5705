/**
 * JSON documents of other servers (keys, metadata, cards, verdicts), which are small: one that has very many values is
 * rejected before it is parsed, because parsing it would hold everybody else up.
 */
import { hasMoreTokens } from "./json-tokens.ts";

/** Values and, twice, names: some 20 ms. */
export const MAX_DOCUMENT_TOKENS = 50_000;

/** Throws an Error whose message completes "the document …". */
export function parseBounded(text: string, maxTokens = MAX_DOCUMENT_TOKENS): unknown {
  if (hasMoreTokens(text, maxTokens)) throw new Error(`has more than ${maxTokens} values and names`);
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("is not JSON");
  }
}

/** Undefined if it is anything but an object. */
export function parseBoundedObject(bytes: Buffer): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parseBounded(bytes.toString("utf8"));
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}
