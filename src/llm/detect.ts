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
