/**
 * Recognises an LLM request on its way to a plain HTTP backend, so that token limits work there too: a JSON
 * object with a `model`, or a path that names one (decisions, LLM).
 */
import type { LlmFacts } from "../../core/facts.ts";
import { LlmRequestFacts } from "./llm-facts.ts";
import { readRequest } from "./read-request.ts";

export function detectLlmRequest(path: string, bytes: Buffer): LlmFacts | undefined {
  // Which server stands behind a plain backend is not known: it may be one that ignores the case of keys.
  const reading = readRequest(path, bytes, "any");
  if (!reading.ok || reading.model === undefined || reading.dialect.free) return undefined;
  return new LlmRequestFacts(reading.model, reading.streaming, bytes);
}

/** Begins like a JSON object but is none that can be read in one way only: two models, two objects, no UTF-8. */
export function isUnclear(path: string, bytes: Buffer): boolean {
  return beginsObject(bytes) && !readRequest(path, bytes, "any").ok;
}

/** Also if nothing but blanks can be seen yet. */
export function beginsObject(bytes: Buffer): boolean {
  let start = bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0;
  while (start < bytes.length && (bytes[start] as number) <= 32) start += 1;
  return start === bytes.length || bytes[start] === 123;
}

/** Whether some reader could find a model in it: the word, in any case, or letters that are written as escapes. */
export function mayNameModel(bytes: Buffer): boolean {
  return /model|\\u00/i.test(bytes.toString("latin1"));
}
