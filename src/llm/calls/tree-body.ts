/**
 * A request that is translated or adapted: its tree is changed and written again. One that the provider takes only in
 * parts (a list of texts to a model that embeds one) becomes several bodies.
 */

import type { Members } from "../../json/json.ts";
import { readSkeleton } from "../../json/skeleton.ts";
import { markPrompt } from "../canonical/prompt-cache.ts";
import { TranslationError } from "../canonical/request-fields.ts";
import type { Translation, TranslationContext } from "../canonical/translation.ts";
import type { Target } from "../models/target.ts";
import type { LlmCall } from "../request/llm-call.ts";
import type { UpstreamCall } from "../request/provider.ts";
import { PlanError } from "./plan-error.ts";

interface TreeEnv {
  readonly maxTreeBytes: number;
  newId(): string;
}

/** At least one body. */
export function treeBodies(
  llm: LlmCall,
  call: UpstreamCall,
  translation: Translation | undefined,
  context: TranslationContext,
  asksForUsage: boolean,
  { provider }: Target,
  env: TreeEnv,
): readonly (readonly Buffer[])[] {
  const skeleton = llm.tree ?? readSkeleton(llm.bytes, env.maxTreeBytes, env.newId());
  if (skeleton === "not JSON")
    throw new PlanError({ status: 400, message: "the body is not valid JSON", code: "invalid_request_body" });
  if ("tooLarge" in skeleton)
    throw new PlanError({
      status: 413,
      message: `a request ${skeleton.tooLarge} cannot be translated`,
      code: "request_too_large",
    });
  const write = (part: Members): readonly Buffer[] => {
    let body = translation ? translation.request(part, context) : { ...part };
    if (llm.caching) body = markPrompt(body, call.format, call.model, llm.caching);
    if (asksForUsage) body = { ...body, stream_options: { include_usage: true } };
    if (provider.adaptBody && provider.needsAdapting?.(call)) body = provider.adaptBody(body, call);
    return skeleton.write(body);
  };
  try {
    return (translation?.parts?.(skeleton.value, context) ?? [skeleton.value]).map(write);
  } catch (error) {
    if (!(error instanceof TranslationError)) throw error;
    throw new PlanError({
      status: 400,
      message: `${error.param}: ${error.message}`,
      param: error.param,
      code: "unsupported_parameter",
    });
  }
}
