/**
 * The models that a key may use: checked when the body was read, and where models are listed. What names no model could
 * use any, so a key with a list cannot send it.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { ModelAccess } from "../../core/facts.ts";
import { matchPattern } from "../../llm/dialects/model-pattern.ts";

export function modelAccess(models: readonly string[] | undefined): ModelAccess | undefined {
  if (models === undefined) return undefined;
  return {
    allows: (model) => models.some((pattern) => matchPattern(pattern, model) !== undefined),
    names: models.filter((name) => !name.includes("*")),
  };
}

/** Where several keys were checked, all must allow it. */
export function bothAccesses(one: ModelAccess | undefined, other: ModelAccess | undefined): ModelAccess | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return {
    allows: (model) => one.allows(model) && other.allows(model),
    names: [...new Set([...one.names, ...other.names])].filter((name) => one.allows(name) && other.allows(name)),
  };
}

/** Throws the refusal of a request that its key may not send. */
export function checkModel({ modelAccess: access, request, facts }: Exchange): undefined {
  if (access === undefined) return;
  const model = facts.llm?.requestModel;
  if (model !== undefined) {
    if (access.allows(model)) return;
    throw new GatewayError("model_not_allowed", {
      message: `the API key may not use the model ${JSON.stringify(model)}`,
    });
  }
  const isLlm = facts.backend?.type === "ai" || facts.llm !== undefined;
  const isReading = request.method === "GET" || request.method === "HEAD" || request.method === "OPTIONS";
  if (!isLlm || (isReading && !request.headers.has("upgrade"))) return;
  throw new GatewayError("model_not_allowed", {
    message: "the API key may use certain models only, and the request names none",
  });
}
