/**
 * Policies of agentgateway in our spelling, with their meaning kept where the same words mean something else.
 */
import { asList, asObject, type Conversion, isObject, type Values } from "./conversion.ts";

const WINDOWS: Readonly<Record<string, string>> = {
  "1s": "Seconds",
  "1m": "Minutes",
  "60s": "Minutes",
  "1h": "Hours",
  "60m": "Hours",
  "3600s": "Hours",
};

type Convert = (value: unknown, at: string, conversion: Conversion) => unknown;

/** Policies of the same name; all others are taken as they are, and the loader judges them. */
const SAME_NAME: Readonly<Record<string, Convert>> = {
  authorization: (value) => withRules(value),
  mcpAuthorization: (value) => withRules(value),
  mcpAuthentication: (value) => withProvider(value),
  retry: (value, at, conversion) => withAttempts(value, at, conversion),
  urlRewrite: (value) => withAuthority(value),
  requestRedirect: (value) => withAuthority(value),
  backendAuth: (value) => withLocation(value),
  requestMirror: (value) => withShare(value),
};

export function convertPolicies(policies: Values, at: string, conversion: Conversion): Values {
  const { localRateLimit, remoteRateLimit, transformation, ...others } = policies;
  const converted: Values = {};
  for (const [name, value] of Object.entries(others))
    converted[name] = SAME_NAME[name]?.(value, `${at}.${name}`, conversion) ?? value;
  if (transformation !== undefined) converted.transformations = transformation;
  const local = localRateLimit === undefined ? undefined : localLimits(localRateLimit, at, conversion);
  const global = isObject(remoteRateLimit) ? globalLimit(remoteRateLimit, at, conversion) : undefined;
  if (local || global) converted.rateLimit = { ...(local ? { local } : {}), ...(global ? { global } : {}) };
  return converted;
}

/** A plain rule admits there, and must hold here. */
function withRules(value: unknown): unknown {
  const rules = asList(asObject(value).rules).map((rule) => (typeof rule === "string" ? { allow: rule } : rule));
  return { ...asObject(value), rules };
}

function withProvider(value: unknown): unknown {
  const { provider, ...others } = asObject(value);
  const [name] = Object.keys(asObject(provider));
  if (provider === undefined) return others;
  const ours = name === "keycloak" ? "idp_realm" : name === "entra" ? "idp_tenant" : name;
  return { ...others, provider: ours === undefined ? provider : { [ours]: asObject(provider)[name ?? ""] ?? {} } };
}

/** There the first attempt counts; one attempt is no retry. */
function withAttempts(value: unknown, at: string, conversion: Conversion): unknown {
  const { attempts, ...others } = asObject(value);
  if (attempts === undefined) return value;
  conversion.differs.push(
    `${at}.attempts: counts attempts after the first here; ${String(attempts)} became ${Number(attempts) - 1}`,
  );
  return { ...others, attempts: Number(attempts) - 1 };
}

function withAuthority(value: unknown): unknown {
  const { authority, ...others } = asObject(value);
  const full = asObject(authority).full ?? asObject(authority).host;
  return authority === undefined
    ? value
    : { ...others, authority: isObject(authority) ? (full ?? authority) : authority };
}

/** One mirror with a share from 0 to 1 there, a list with percents here. */
function withShare(value: unknown): unknown {
  const { backend, percentage } = asObject(value);
  const share = percentage === undefined ? {} : { percent: Number(percentage) * 100 };
  return isObject(backend) ? [{ ...backend, ...share }] : value;
}

function withLocation(value: unknown): unknown {
  const { key, ...others } = asObject(value);
  if (!isObject(key) || key.value === undefined) return value;
  const header = asObject(key.location).header;
  return { ...others, key: key.value, ...(header === undefined ? {} : { header }) };
}

function localLimits(value: unknown, at: string, conversion: Conversion): Values[] {
  return asList(value).flatMap((one, index): Values[] => {
    const { maxTokens, tokensPerFill, fillInterval, type, ...others } = asObject(one);
    const unit = WINDOWS[String(fillInterval)];
    const place = `${at}.localRateLimit[${index}]`;
    if (unit === undefined) {
      conversion.leftOut.push(
        `${place}: its window is ${String(fillInterval ?? "conditional")}; here it is a second, a minute or an hour`,
      );
      return [];
    }
    for (const name of Object.keys(others)) conversion.leftOut.push(`${place}.${name}: there is no counterpart`);
    const base = Number(tokensPerFill ?? maxTokens);
    const burst = Number(maxTokens ?? base) - base;
    if (type === "tokens") return [{ tokens: base, unit }];
    return [{ requests: base, unit, ...(burst > 0 ? { burst } : {}) }];
  });
}

function globalLimit(value: Values, at: string, conversion: Conversion): Values {
  const { failureMode, descriptors, ...others } = value;
  const mode = /open$/i.test(String(failureMode ?? "")) ? "open" : "closed";
  const list = asList(descriptors).map((one, index) => {
    const { entries, type, ...more } = asObject(one);
    for (const name of Object.keys(more))
      conversion.leftOut.push(`${at}.remoteRateLimit.descriptors[${index}].${name}: there is no counterpart`);
    return { entries, ...(type === undefined ? {} : { type }) };
  });
  return { ...others, failureMode: mode, descriptors: list };
}

/** What stands beside a model there is a policy of the model here. */
export function modelPolicies(model: Values, conversion: Conversion): Values {
  const { authorization, defaults, overrides, guardrails, promptCaching, requestHeaders, responseHeaders, ...rest } =
    model;
  const ai = present({ defaults, overrides, promptGuard: guardrails, promptCaching: cachingOf(promptCaching) });
  const policies = present({
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
  // Without a word, tools are not cached there.
  return present({ system: cacheSystem, messages: cacheMessages, tools: cacheTools ?? false, minTokens, ...others });
}

function present(values: Values): Values {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
