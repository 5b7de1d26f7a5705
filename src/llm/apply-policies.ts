/**
 * Applies the `ai` policies (prompt rules and request guards) to a call before a target is chosen.
 */
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../base/sliced-work.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Members } from "../json/json.ts";
import { isLossless } from "../json/lossless.ts";
import { type Skeleton, skeletonSteps } from "../json/skeleton.ts";
import { hasCacheMarks } from "./dialects/prompt-cache.ts";
import { checkAll } from "./guards/guard-webhook.ts";
import { createShadowGuards, GuardRejection } from "./guards/guarded-text.ts";
import { applyRules, editsRequest, hasTokenNumbers, mergeRules } from "./guards/prompt-rules.ts";
import { BodyTexts } from "./guards/text-places.ts";
import type { Candidate } from "./models/model-table.ts";
import type { LlmCall, PromptRules, TextGuard } from "./request/llm-call.ts";
import { LlmRejection } from "./request/llm-errors.ts";
import { scanSteps } from "./request/read-request.ts";
import { omitsFeatures, type PlanOptions, upstreamFormat } from "./upstream-request.ts";

export interface PreparedRequest {
  readonly llm: LlmCall;
  readonly model: string | undefined;
  readonly rules: PromptRules;
}

export function requestedModel({ dialect, scan, rules: list }: LlmCall): string | undefined {
  const rules = mergeRules(list);
  const isEdited = dialect.format !== "opaque" && !scan.isForm;
  const set = isEdited ? (rules.overrides?.model ?? scan.model ?? rules.defaults?.model) : scan.model;
  const model = dialect.pathModel ?? (typeof set === "string" ? set : undefined);
  return (model !== undefined && rules.aliases?.(model)) || model;
}

/** Throws `LlmRejection` if a policy rejects the request or cannot read its body. */
export function* applyPolicies(llm: LlmCall, env: PlanOptions, exchange: Exchange): Steps<PreparedRequest> {
  const rules = mergeRules(llm.rules);
  // Opaque requests, such as images and speech, have no messages, but guards check their strings.
  const applicable = llm.dialect.format === "opaque" ? { requestGuards: rules.requestGuards } : rules;
  // Prompt policies do not edit multipart forms, because form fields are not parsed into a tree.
  const edited = editsRequest(applicable) && !llm.scan.isForm ? yield* edit(llm, applicable, env) : llm;
  if (rules.watchedRequests && !edited.scan.isForm) yield* watchRequest(edited, rules.watchedRequests, env, exchange);
  const model = edited.dialect.pathModel ?? edited.scan.model;
  const caching = llm.dialect.operation === "count" ? undefined : rules.promptCaching;
  return {
    llm: caching === undefined ? edited : { ...edited, caching },
    model: (model !== undefined && rules.aliases?.(model)) || model,
    rules,
  };
}

/** Parses the body in slices if a candidate needs its tree. */
export function* withTree(
  policed: PreparedRequest,
  candidates: readonly Candidate[] | undefined,
  env: PlanOptions,
): Steps<PreparedRequest> {
  const { llm } = policed;
  if (candidates === undefined || llm.scan.isForm || !candidates.some((one) => needsTree(llm, one))) return policed;
  const tree = yield* skeletonSteps(env.tree, llm.bytes, env.newId());
  return { ...policed, llm: { ...llm, tree } };
}

function needsTree(llm: LlmCall, { target, model }: Candidate): boolean {
  const { dialect, caching } = llm;
  const { provider } = target;
  const format = upstreamFormat(llm, target, model);
  if (format === undefined) return false;
  if (format !== dialect.format || provider.needsAdapting?.({ format }) === true) return true;
  if (omitsFeatures(llm, target, format)) return true;
  return caching !== undefined && hasCacheMarks(format, model);
}

function* parseTree(llm: LlmCall, env: PlanOptions, purpose: string): Steps<Skeleton> {
  const tree = yield* skeletonSteps(env.tree, llm.bytes, env.newId());
  if (tree === "not JSON")
    throw new LlmRejection({ status: 400, message: "the body is not valid JSON", code: "invalid_request_body" });
  if ("tooLarge" in tree)
    throw new LlmRejection({
      status: 413,
      message: `a request ${tree.tooLarge} cannot ${purpose}`,
      code: "request_too_large",
    });
  return tree;
}

function* rewritten(llm: LlmCall, tree: Skeleton, value: Members, maker: string): Steps<LlmCall> {
  yield;
  const bytes = Buffer.concat(tree.write(value));
  yield;
  const scanned = yield* scanSteps(bytes);
  if (!scanned.ok)
    throw new GatewayError("internal", { detail: `${maker} made an invalid request: ${scanned.reason}` });
  return { ...llm, bytes, scan: scanned.scan };
}

function* edit(llm: LlmCall, rules: PromptRules, env: PlanOptions): Steps<LlmCall> {
  const tree = yield* parseTree(llm, env, "pass the prompt policies");
  try {
    if (rules.requestGuards) rejectTokenNumbers(tree.value);
    const value = yield* applyRules(tree.value, llm.dialect.format, rules, tree.resolve);
    if (value === tree.value && (yield* isLossless(llm.bytes, value))) return llm;
    return yield* rewritten(llm, tree, value, "a prompt policy");
  } catch (error) {
    if (!(error instanceof GuardRejection)) throw error;
    throw new LlmRejection({ status: error.status, message: error.message, code: "content_rejected" });
  }
}

/**
 * Replaces strings with those that the webhook guards return. Rejects with `LlmRejection` if a guard blocks the call or
 * cannot read the body.
 */
export async function applyWebhooks(
  policed: PreparedRequest,
  env: PlanOptions,
  isOver: () => boolean,
): Promise<PreparedRequest> {
  const { llm, model, rules } = policed;
  if (rules.requestWebhooks === undefined || llm.scan.isForm) return policed;
  const run = <T>(steps: Steps<T>): T | Promise<T> =>
    llm.bytes.length > SLICED_BYTES ? runInSlices(steps, isOver) : finish(steps);
  const tree = await run(parseTree(llm, env, "pass the guards"));
  rejectTokenNumbers(tree.value);
  const found = new BodyTexts(tree.value, { direction: "request", resolve: tree.resolve });
  const { texts } = found;
  try {
    const checked = await checkAll(rules.requestWebhooks, { direction: "request", model, texts });
    if (checked === texts && (await run(isLossless(llm.bytes, tree.value)))) return policed;
    return { ...policed, llm: await run(rewritten(llm, tree, found.replaced(checked), "a guard")) };
  } catch (error) {
    if (!(error instanceof GuardRejection)) throw error;
    throw new LlmRejection({ status: error.status, message: error.message, code: "content_rejected" });
  }
}

function rejectTokenNumbers(body: Members): void {
  if (!hasTokenNumbers(body)) return;
  const message = "the guards of this route cannot read a prompt of token numbers: send it as text";
  throw new LlmRejection({ status: 400, message, code: "unsupported_format" });
}

function* watchRequest(llm: LlmCall, guards: readonly TextGuard[], env: PlanOptions, exchange: Exchange): Steps<void> {
  const watch = createShadowGuards(exchange, "request");
  const tree = yield* skeletonSteps(env.tree, llm.bytes, env.newId());
  if (tree === "not JSON") watch.unread(guards, "the body is not valid JSON");
  else if ("tooLarge" in tree) watch.unread(guards, `a request ${tree.tooLarge} cannot be read`);
  else
    yield* new BodyTexts(tree.value, { direction: "request", resolve: tree.resolve }).guarded(guards, (guard) =>
      watch.found(guard),
    );
}
