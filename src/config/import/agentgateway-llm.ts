/**
 * Converts agentgateway's section `llm`: models, the providers that they share, and their policies.
 */
import { defined } from "../../json/json.ts";
import { asList, asObject, type Conversion, isObject, leaveOutOthers, type Values } from "./conversion.ts";

type ConvertPolicies = (policies: Values, at: string, conversion: Conversion) => Values;

export function llmOf(llm: Values, convertPolicies: ConvertPolicies, conversion: Conversion): Values {
  const { providers, ...section } = llm;
  const named = asList(providers).map(asObject);
  const kept = named.filter(isShareable);
  // Other fields of a provider are settings of each model here.
  const shared = new Map(named.filter((one) => !isShareable(one)).map((one) => [String(one.name), one]));
  const models = asList(llm.models).map((one, index) => {
    const own = withProvider(asObject(one), shared);
    const { auth, ...model } = modelPolicies(
      withoutModelTransformation(own, `llm.models[${index}]`, conversion),
      convertPolicies,
      conversion,
    );
    const params = asObject(model.params);
    const key = asObject(auth).key;
    return key === undefined ? { ...model, ...defined({ auth }) } : { ...model, params: { ...params, apiKey: key } };
  });
  return {
    ...section,
    ...(kept.length === 0 ? {} : { providers: kept }),
    ...(llm.models === undefined ? {} : { models }),
    ...(Array.isArray(llm.virtualModels) ? { virtualModels: llm.virtualModels.map(withConditions) } : {}),
  };
}

/** The attribute `llmRequest` is the parsed body. Strings in an expression stay as they are. */
const LLM_REQUEST = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?<![\w.])llmRequest\b/g;

function withConditions(value: unknown): unknown {
  const model = asObject(value);
  const { conditional, ...routing } = asObject(model.routing);
  if (!isObject(conditional) || !Array.isArray(conditional.targets)) return value;
  const targets = conditional.targets.map((one) => {
    const { when, ...others } = asObject(one);
    if (typeof when !== "string") return one;
    return {
      ...others,
      when: when.replaceAll(LLM_REQUEST, (text) => (text === "llmRequest" ? "json(request.body)" : text)),
    };
  });
  return { ...model, routing: { ...routing, conditional: { ...conditional, targets } } };
}

const SHARED_FIELDS = ["name", "provider", "params"];

function isShareable(provider: Values): boolean {
  return Object.keys(provider).every((field) => SHARED_FIELDS.includes(field));
}

/** Copies the fields of the provider that `provider.reference` names. Other fields of the model take precedence. */
function withProvider(model: Values, shared: ReadonlyMap<string, Values>): Values {
  const reference = asObject(model.provider).reference;
  const found = reference === undefined ? undefined : shared.get(String(reference));
  if (found === undefined) return model;
  const { name: _name, provider, params, ...others } = found;
  return { ...others, ...model, provider, params: { ...asObject(params), ...asObject(model.params) } };
}

const STRIPPED = /^\s*llmRequest\.model\.stripPrefix\((["'])([^"'\\]*)\1\)\s*$/;

/** Converts a `stripPrefix` of the prefix in the model's name to `params.model: "*"`. Other fields stay. */
function withoutModelTransformation(model: Values, at: string, conversion: Conversion): Values {
  const { model: written, ...fields } = asObject(model.transformation);
  if (written === undefined) return model;
  const { transformation: _transformation, ...others } = model;
  const kept = Object.keys(fields).length === 0 ? others : { ...others, transformation: fields };
  const prefix = STRIPPED.exec(String(written))?.[2];
  if (prefix !== undefined && model.name === `${prefix}*`)
    return { ...kept, params: { ...asObject(model.params), model: "*" } };
  leaveOutOthers(conversion, `${at}.transformation.`, { model: written }, [], "there is no counterpart");
  return kept;
}

/** Moves the fields of a model that are policies in this gateway to `policies`. */
function modelPolicies(model: Values, convertPolicies: ConvertPolicies, conversion: Conversion): Values {
  const { authorization, defaults, overrides, guardrails, promptCaching, requestHeaders, responseHeaders, ...others } =
    model;
  const { transformation: transformations, ...rest } = others;
  const caching = cachingOf(promptCaching);
  const ai = defined({ defaults, overrides, transformations, promptGuard: guardrails, promptCaching: caching });
  const policies = defined({
    authorization,
    ai: Object.keys(ai).length === 0 ? undefined : ai,
    requestHeaderModifier: requestHeaders,
    responseHeaderModifier: responseHeaders,
  });
  if (Object.keys(policies).length === 0) return rest;
  return { ...rest, policies: convertPolicies(policies, `llm.models (${String(model.name)})`, conversion) };
}

function cachingOf(value: unknown): Values | undefined {
  if (!isObject(value)) return undefined;
  const { cacheSystem, cacheMessages, cacheTools, minTokens, ...others } = value;
  // agentgateway does not cache tools by default, so this default is written out.
  return defined({ system: cacheSystem, messages: cacheMessages, tools: cacheTools ?? false, minTokens, ...others });
}
