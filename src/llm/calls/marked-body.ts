/**
 * A request that passes in the client's own words, but for marks that tell the provider's prompt cache what to keep.
 */

import { readSkeleton } from "../../json/skeleton.ts";
import { markPrompt } from "../canonical/prompt-cache.ts";
import type { LlmCall, PromptCaching } from "../request/llm-call.ts";
import type { UpstreamCall } from "../request/provider.ts";

interface MarkingEnv {
  readonly maxTreeBytes: number;
  newId(): string;
}

/** The client's request with marks for the prompt cache; undefined if it is too large to be edited. */
export function markedBody(
  llm: LlmCall,
  { format, model }: UpstreamCall,
  caching: PromptCaching,
  modelInBody: boolean,
  env: MarkingEnv,
): readonly Buffer[] | undefined {
  const skeleton = llm.tree ?? readSkeleton(llm.bytes, env.maxTreeBytes, env.newId());
  if (skeleton === "not JSON" || "tooLarge" in skeleton) return undefined;
  const marked = markPrompt(skeleton.value, format, model, caching);
  if (marked === skeleton.value) return undefined;
  return skeleton.write(modelInBody && model !== "" ? { ...marked, model } : marked);
}
