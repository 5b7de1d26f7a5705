/**
 * The models that a key may use: checked when the body was read, and where models are listed. Every model that the request
 * names anywhere must be in the list. A request that names none, or to which the name does not apply (batches, files), could
 * use any model, so a key with a list cannot send it.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { ModelAccess } from "../../core/facts.ts";
import { includesHeader } from "../../http/header-rules.ts";
import { dialectOf } from "../../llm/request/dialect.ts";
import { LlmRequestFacts } from "../../llm/request/llm-facts.ts";
import { matchPattern } from "../../llm/request/model-pattern.ts";

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

/** These have no body, and what they ask for is made already. */
const READING: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);
/** Some servers go by these instead of the method. */
const METHOD_OVERRIDES: ReadonlySet<string> = new Set(["x-http-method-override", "x-http-method", "x-method-override"]);

/** Throws the refusal of a request that its key may not send. */
export function checkModel({ modelAccess: access, request, facts }: Exchange): undefined {
  if (access === undefined) return;
  // Plain HTTP backends may be providers, too. MCP servers, agents and the gateway's own pages are not.
  const { backend, llm, a2a } = facts;
  if (backend?.type !== "ai" && (backend?.type !== "static" || a2a !== undefined)) return;
  for (const model of LlmRequestFacts.modelsOf(llm)) {
    if (!access.allows(model))
      throw refusal(`the API key may not use the model ${JSON.stringify(model)}, which the request names`);
  }
  const { method, headers, body, path } = request;
  if (headers.has("upgrade"))
    throw refusal("the API key may use certain models only, and what passes a WebSocket cannot be checked");
  const isReading =
    body.kind === "none" &&
    READING.has(method) &&
    ![...headers.names()].some((name) => includesHeader(METHOD_OVERRIDES, name));
  if (isReading) return;
  if (llm?.requestModel === undefined)
    throw refusal("the API key may use certain models only, and the request names none");
  if (!dialectOf(path).goesByModel)
    throw refusal("the API key may use certain models only, and what is stored under this path can use any");
}

function refusal(message: string): GatewayError {
  return new GatewayError("model_not_allowed", { message });
}
