/**
 * Recognises an LLM request on its way to a plain HTTP backend, so that token limits work there too: a JSON
 * object with a `model`, or a path that names one (decisions, LLM).
 */
import type { LlmFacts } from "../core/exchange.ts";
import { dialectOf } from "./dialect.ts";
import { LlmRequestFacts } from "./llm-facts.ts";
import { scanRequest } from "./scan-request.ts";

export function detectLlmRequest(path: string, bytes: Buffer): LlmFacts | undefined {
  const scanned = scanRequest(bytes);
  if (!scanned.ok) return undefined;
  const dialect = dialectOf(path);
  const model = dialect.pathModel ?? scanned.scan.model;
  if (model === undefined || dialect.free) return undefined;
  return new LlmRequestFacts(model, dialect.pathStream ?? scanned.scan.stream ?? false, bytes);
}

/** Begins like a JSON object but is none that can be read in one way only: two models, two objects, no UTF-8. */
export function isUnclear(bytes: Buffer): boolean {
  let start = bytes.length >= 3 && bytes.readUIntBE(0, 3) === 0xefbbbf ? 3 : 0;
  while (start < bytes.length && (bytes[start] as number) <= 32) start += 1;
  return bytes[start] === 123 && !scanRequest(bytes).ok;
}
