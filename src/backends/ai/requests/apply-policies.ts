/**
 * The rules of the `ai` policies, applied to a call before a target is chosen: the result is a call like any other,
 * with other bytes.
 */
import { GatewayError } from "../../../core/errors.ts";
import type { LlmCall, PromptRules, TextGuard, WebhookGuard } from "../../../llm/dialects/llm-call.ts";
import { scanRequest } from "../../../llm/dialects/scan-request.ts";
import type { GuardWatch } from "../../../llm/guards/guard-watch.ts";
import { checkAll } from "../../../llm/guards/guard-webhook.ts";
import { mapPromptTexts } from "../../../llm/guards/map-texts.ts";
import { applyRules, editsRequest, GuardRejection, mergeRules, watchText } from "../../../llm/guards/prompt-rules.ts";
import { readSkeleton } from "../../../llm/wire/skeleton.ts";
import { type PlanEnv, PlanError } from "./upstream-request.ts";

export interface PolicedCall {
  readonly llm: LlmCall;
  /** What is asked for, after overrides and aliases. */
  readonly model: string | undefined;
  readonly rules: PromptRules;
}

/** Throws PlanError with what the client is to be told. `watch` hears what guards in shadow mode find. */
export function applyPolicies(llm: LlmCall, env: PlanEnv, watch: GuardWatch): PolicedCall {
  const rules = mergeRules(llm.rules);
  // What is passed on unread (images, speech, older completions) has no place for messages, but its texts are guarded.
  const applicable = llm.dialect.format === "opaque" ? { requestGuards: rules.requestGuards } : rules;
  // Nothing but the model is read of a form with files.
  const edited = editsRequest(applicable) && !llm.scan.isForm ? edit(llm, applicable, env) : llm;
  if (rules.watchedRequests && !edited.scan.isForm) watchRequest(edited, rules.watchedRequests, env, watch);
  const model = edited.dialect.pathModel ?? edited.scan.model;
  return { llm: edited, model: (model !== undefined && rules.aliases?.(model)) || model, rules };
}

function edit(llm: LlmCall, rules: PromptRules, env: PlanEnv): LlmCall {
  const skeleton = readSkeleton(llm.bytes, env.maxTreeBytes, env.newId());
  if (skeleton === "not JSON")
    throw new PlanError({ status: 400, message: "the body is not valid JSON", code: "invalid_request_body" });
  if ("tooLarge" in skeleton)
    throw new PlanError({
      status: 413,
      message: `a request ${skeleton.tooLarge} cannot pass the prompt policies`,
      code: "request_too_large",
    });
  try {
    const bytes = Buffer.concat(skeleton.write(applyRules(skeleton.value, llm.dialect.format, rules)));
    const scanned = scanRequest(bytes);
    if (!scanned.ok)
      throw new GatewayError("internal", { detail: `a prompt policy made an invalid request: ${scanned.reason}` });
    return { ...llm, bytes, scan: scanned.scan };
  } catch (error) {
    if (!(error instanceof GuardRejection)) throw error;
    throw new PlanError({ status: error.status, message: error.message, code: "content_rejected" });
  }
}

/** The call with the texts that guards by webhook leave. Rejects with PlanError. */
export async function applyWebhooks(
  policed: PolicedCall,
  webhooks: readonly WebhookGuard[],
  env: PlanEnv,
): Promise<PolicedCall> {
  const { llm, model } = policed;
  if (llm.scan.isForm) return policed;
  const skeleton = readSkeleton(llm.bytes, env.maxTreeBytes, env.newId());
  if (skeleton === "not JSON")
    throw new PlanError({ status: 400, message: "the body is not valid JSON", code: "invalid_request_body" });
  if ("tooLarge" in skeleton)
    throw new PlanError({
      status: 413,
      message: `a request ${skeleton.tooLarge} cannot pass the guards`,
      code: "request_too_large",
    });
  const texts: string[] = [];
  mapPromptTexts(skeleton.value, (text) => {
    texts.push(text);
    return text;
  });
  try {
    const judged = await checkAll(webhooks, { direction: "request", model, texts });
    if (judged === texts) return policed;
    let next = 0;
    const bytes = Buffer.concat(skeleton.write(mapPromptTexts(skeleton.value, () => judged[next++] ?? "")));
    const scanned = scanRequest(bytes);
    if (!scanned.ok)
      throw new GatewayError("internal", { detail: `a guard made an invalid request: ${scanned.reason}` });
    return { ...policed, llm: { ...llm, bytes, scan: scanned.scan } };
  } catch (error) {
    if (!(error instanceof GuardRejection)) throw error;
    throw new PlanError({ status: error.status, message: error.message, code: "content_rejected" });
  }
}

/** The same texts as an enforced guard reads; what it could not read it would reject. */
function watchRequest(llm: LlmCall, guards: readonly TextGuard[], env: PlanEnv, watch: GuardWatch): void {
  const skeleton = readSkeleton(llm.bytes, env.maxTreeBytes, env.newId());
  if (skeleton === "not JSON") watch.unread(guards, "the body is not valid JSON");
  else if ("tooLarge" in skeleton) watch.unread(guards, `a request ${skeleton.tooLarge} cannot be read`);
  else mapPromptTexts(skeleton.value, (text) => watchText(text, guards, (guard) => watch.found(guard)));
}
