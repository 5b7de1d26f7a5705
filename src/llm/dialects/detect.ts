/**
 * Recognises an LLM request on its way to a plain HTTP backend, so that token limits work there too: a JSON
 * object with a `model`, or a path that names one (decisions, LLM).
 */
import type { Steps } from "../../lib/process/turns.ts";
import { LlmRequestFacts } from "./llm-facts.ts";
import { readingSteps } from "./read-request.ts";

/** About 0.3 ms. */
const STEP_BYTES = 64 * 1024;
/** So that a word that stands across two steps is found. */
const WORD_BYTES = 8;

export interface Detected {
  readonly facts: LlmRequestFacts | undefined;
  /** Begins like a JSON object but is none that can be read in one way only: two models, two objects, no UTF-8. */
  readonly isUnclear: boolean;
}

export function* detectLlmRequest(path: string, bytes: Buffer): Steps<Detected> {
  // Which server stands behind a plain backend is not known: it may be one that ignores the case of keys.
  const reading = yield* readingSteps(path, bytes, "any");
  if (!reading.ok) return { facts: undefined, isUnclear: beginsObject(bytes) };
  if (reading.model === undefined || reading.dialect.free) return { facts: undefined, isUnclear: false };
  return { facts: new LlmRequestFacts(reading.model, reading.streaming, bytes), isUnclear: false };
}

/** Also if nothing but blanks can be seen yet. */
export function beginsObject(bytes: Buffer): boolean {
  let start = bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0;
  while (start < bytes.length && (bytes[start] as number) <= 32) start += 1;
  return start === bytes.length || bytes[start] === 123;
}

/** Whether some reader could find a model in it: the word, in any case, or letters that are written as escapes. */
export function* mayNameModel(bytes: Buffer): Steps<boolean> {
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    if (/model|\\u00/i.test(bytes.toString("latin1", from, from + STEP_BYTES + WORD_BYTES))) return true;
  }
  return false;
}
