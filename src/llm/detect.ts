/**
 * Recognises an LLM request on its way to a plain HTTP backend, so that token limits work there too: a JSON
 * object with a `model`, or a path that names one (decisions, LLM).
 */
import type { LlmFacts } from "../core/exchange.ts";
import { dialectOf } from "./dialect.ts";
import { estimateRequestTokens } from "./estimate-request.ts";
import { scanRequest } from "./scan-request.ts";

export function detectLlmRequest(path: string, bytes: Buffer): LlmFacts | undefined {
  const scanned = scanRequest(bytes);
  if (!scanned.ok) return undefined;
  const dialect = dialectOf(path);
  const model = dialect.pathModel ?? scanned.scan.model;
  if (model === undefined || dialect.free) return undefined;
  return createLlmFacts(model, dialect.pathStream ?? scanned.scan.stream ?? false, bytes);
}

/** The estimate is made when a limit asks for it, and only once: most requests are under no token limit. */
export function createLlmFacts(requestModel: string | undefined, streaming: boolean, bytes: Buffer): LlmFacts {
  let unread: Buffer | undefined = bytes;
  let estimate = 0;
  return {
    ...(requestModel === undefined ? {} : { requestModel }),
    streaming,
    get estimatedTokens() {
      if (unread !== undefined) {
        estimate = estimateRequestTokens(unread);
        unread = undefined;
      }
      return estimate;
    },
    set estimatedTokens(tokens) {
      unread = undefined;
      estimate = tokens;
    },
  };
}
