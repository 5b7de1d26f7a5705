/**
 * A request that passes in the client's own words, but for marks that tell the provider's prompt cache what to keep.
 */
import type { LlmCall, PromptCaching } from "../../../llm/dialects/llm-call.ts";
import type { UpstreamCall } from "../../../llm/dialects/provider.ts";
import { markPrompt } from "../../../llm/upstreams/cache-marks.ts";
import { readSkeleton } from "../../../llm/wire/skeleton.ts";

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
