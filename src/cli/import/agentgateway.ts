/**
 * Converts a configuration of agentgateway, in either of its layouts, by rewriting fields with another name or shape.
 */
import {
  asList,
  asObject,
  type Conversion,
  close,
  defined,
  isObject,
  leaveOutOthers,
  newConversion,
  protectingPolicy,
  type Values,
} from "./conversion.ts";

const LISTENER = ["port", "protocol", "address", "tls", "policies"];

export function importAgentgateway(source: unknown): Conversion {
  if (!isObject(source)) throw new Error("the file has no fields");
  const { binds, gateways, routes, mcp, llm, ...others } = withBraces(source) as Values;
  const conversion = newConversion({});
  const { config } = conversion;
  if (others.config !== undefined) config.config = others.config;
  const listeners: Values = {};
  const allRoutes: Values[] = [];
  addBinds(asList(binds), listeners, allRoutes, conversion);
  for (const [name, gateway] of Object.entries(asObject(gateways)))
    listeners[name] = listenerOf(
      withTls(asObject(gateway), `gateways.${name}`, conversion),
      `gateways.${name}`,
      conversion,
    );
  for (const [index, route] of asList(routes).entries())
    allRoutes.push(routeOf(asObject(route), `routes[${index}]`, conversion));
  if (Object.keys(listeners).length > 0) config.gateways = listeners;
  if (allRoutes.length > 0) config.routes = allRoutes;
  if (isObject(mcp)) config.mcp = sectionOf(mcpOf(mcp, "mcp", conversion), "mcp", conversion);
  if (isObject(llm)) config.llm = sectionOf(llmOf(llm, conversion), "llm", conversion);
  Object.assign(config, others);
  note(conversion, JSON.stringify(source));
  return conversion;
}

/**
 * Adds a listener for each bind. The host name of an agentgateway listener becomes the default host name of its
 * routes.
 */
function addBinds(binds: readonly unknown[], listeners: Values, routes: Values[], conversion: Conversion): void {
  for (const [index, bind] of binds.entries()) {
    const { port, listeners: list, ...others } = asObject(bind);
    const name = Object.keys(listeners).length === 0 ? "default" : `port-${String(port)}`;
    const at = `binds[${index}]`;
    const entries = asList(list).map(asObject);
    const [first = {}] = entries;
    const { protocol } = first;
    const { tls, conflict } = portTls(entries, at, conversion);
    const policies = entries.length === 1 ? first.policies : undefined;
    listeners[name] = listenerOf({ port, ...others, ...defined({ policies, protocol, tls }) }, at, conversion);
    for (const [number, listener] of entries.entries())
      addRoutes(listener, `${at}.listeners[${number}]`, {
        name,
        isAlone: entries.length === 1,
        closedBy: asObject(listener.tls).root === undefined ? undefined : conflict,
        routes,
        conversion,
      });
  }
}

interface Place {
  readonly name: string;
  readonly isAlone: boolean;
  readonly closedBy: string | undefined;
  readonly routes: Values[];
  readonly conversion: Conversion;
}

function addRoutes(listener: Values, at: string, { name, isAlone, closedBy, routes, conversion }: Place): void {
  const { name: _name, hostname, routes: own, policies, protocol: _protocol, tls: _tls, ...others } = listener;
  for (const field of Object.keys(others)) conversion.leftOut.push(`${at}.${field}: there is no counterpart`);
  for (const [index, one] of asList(own).entries()) {
    const route: Values = { ...routeOf(asObject(one), `${at}.routes[${index}]`, conversion), gateways: name };
    if (hostname !== undefined) route.hostnames ??= [hostname];
    if (!isAlone && isObject(policies)) addPolicies(route, policies, `${at}.policies`, conversion);
    if (closedBy !== undefined) close(conversion, route, `${at}.routes[${index}]`, closedBy);
    routes.push(route);
  }
}

/**
 * A route has at most one policy of each kind. If the listener and the route both have a protecting policy of the same
 * kind, the route is closed, because neither policy alone is sufficient.
 */
function addPolicies(route: Values, ofListener: Values, at: string, conversion: Conversion): void {
  const own = asObject(route.policies);
  const both = Object.keys(ofListener).filter((kind) => kind in own);
  route.policies = { ...convertPolicies(ofListener, at, conversion), ...own };
  for (const kind of both) {
    conversion.leftOut.push(`${at}.${kind}: the route has one of its own`);
    if (protectingPolicy([at, kind]) !== undefined)
      close(conversion, route, `a route of ${at}`, `it has two of ${kind}`);
  }
}

function listenerOf(gateway: Values, at: string, conversion: Conversion): Values {
  const beside = Object.entries(gateway).filter(([name]) => !LISTENER.includes(name));
  const policies = { ...Object.fromEntries(beside), ...asObject(gateway.policies) };
  const own = Object.fromEntries(Object.entries(gateway).filter(([name]) => LISTENER.includes(name)));
  if (isObject(own.tls)) own.protocol ??= "HTTPS";
  if (Object.keys(policies).length === 0) return own;
  return { ...own, policies: convertPolicies(policies, `${at}.policies`, conversion) };
}

function withTls(gateway: Values, at: string, conversion: Conversion): Values {
  return isObject(gateway.tls) ? { ...gateway, tls: tlsOf(gateway.tls, at, conversion) } : gateway;
}

function routeOf(route: Values, at: string, conversion: Conversion): Values {
  const { matches, backends, policies, ...others } = route;
  return {
    ...others,
    ...(matches === undefined ? {} : { matches: asList(matches).map(matchOf) }),
    ...(backends === undefined
      ? {}
      : { backends: asList(backends).map((one, i) => backendOf(asObject(one), `${at}.backends[${i}]`, conversion)) }),
    ...(isObject(policies) ? { policies: convertPolicies(policies, `${at}.policies`, conversion) } : {}),
  };
}

/** Rewrites `value: { exact }` to `exact` in conditions on headers and the query. */
function matchOf(match: unknown): unknown {
  if (!isObject(match)) return match;
  const flat = (list: unknown): unknown[] =>
    asList(list).map((entry) => {
      const { value, ...others } = asObject(entry);
      return isObject(value) ? { ...others, ...value } : entry;
    });
  return defined({ ...match, headers: match.headers && flat(match.headers), query: match.query && flat(match.query) });
}

function backendOf(backend: Values, at: string, conversion: Conversion): Values {
  const { mcp, ai, policies, ...others } = backend;
  const isOpen = isObject(mcp) ? mcpOf(mcp, `${at}.mcp`, conversion) : undefined;
  return {
    ...others,
    ...(isOpen ? { mcp: isOpen } : {}),
    ...(isObject(ai) ? { ai: aiOf(ai, at, conversion) } : {}),
    ...(isObject(policies) ? { policies: convertPolicies(policies, `${at}.policies`, conversion) } : {}),
  };
}

function aiOf(ai: Values, at: string, conversion: Conversion): Values {
  if (ai.groups !== undefined) {
    const groups = asList(ai.groups).map((group) => ({
      ...asObject(group),
      providers: asList(asObject(group).providers).map((one) => aiOf(asObject(one), at, conversion)),
    }));
    return { ...ai, groups };
  }
  const { policies, ...others } = ai;
  const { backendAuth, ...more } = asObject(policies);
  for (const name of Object.keys(more))
    conversion.leftOut.push(`${at}.ai.policies.${name}: policies of one provider are not supported`);
  return { ...others, ...(isObject(backendAuth) ? { auth: backendAuth } : {}) };
}

function mcpOf(mcp: Values, at: string, conversion: Conversion): Values {
  const targets = asList(mcp.targets).flatMap((one, index) => {
    const target = targetOf(asObject(one));
    const kinds = Object.keys(target).filter((field) => !["name", "policies"].includes(field));
    if (kinds.some((kind) => ["stdio", "mcp", "sse"].includes(kind))) return [target];
    conversion.leftOut.push(`${at}.targets[${index}] (${String(target.name)}): ${kinds.join(", ")} has no counterpart`);
    return [];
  });
  if (mcp.failureMode === undefined && targets.length > 1)
    conversion.differs.push(
      `${at}.failureMode: written out, because the default differs (there failClosed, here failOpen)`,
    );
  return { ...mcp, targets, ...(targets.length > 1 ? { failureMode: mcp.failureMode ?? "failClosed" } : {}) };
}

function targetOf(target: Values): Values {
  for (const kind of ["mcp", "sse"]) {
    const remote = target[kind];
    if (!isObject(remote) || remote.host === undefined) continue;
    const { host, port, path, ...others } = remote;
    return { ...target, [kind]: { url: urlOf(String(host), port, path, kind === "sse" ? "/sse" : "/mcp"), ...others } };
  }
  return target;
}

function urlOf(host: string, port: unknown, path: unknown, standard: string): string {
  if (/^https?:\/\//.test(host)) return host;
  const scheme = Number(port) === 443 ? "https" : "http";
  const isStandard = port === undefined || Number(port) === 443;
  return `${scheme}://${host}${isStandard ? "" : `:${String(port)}`}${typeof path === "string" ? path : standard}`;
}

function llmOf(llm: Values, conversion: Conversion): Values {
  const models = asList(llm.models).map((one) => {
    const { auth, ...model } = modelPolicies(asObject(one), conversion);
    const params = asObject(model.params);
    const key = asObject(auth).key;
    return key === undefined
      ? { ...model, ...(auth === undefined ? {} : { auth }) }
      : { ...model, params: { ...params, apiKey: key } };
  });
  if (llm.port === undefined) conversion.differs.push("llm: listens on a port of its own here, 4000");
  return { ...llm, ...(llm.models === undefined ? {} : { models }) };
}

function sectionOf(section: Values, at: string, conversion: Conversion): Values {
  if (!isObject(section.policies)) return section;
  return { ...section, policies: convertPolicies(section.policies, `${at}.policies`, conversion) };
}

/** Rewrites `$NAME` to `${NAME}` and `$$` to `$`. */
function withBraces(value: unknown): unknown {
  if (typeof value === "string")
    return value.replaceAll(/\$\$|\$([A-Za-z_]\w*)/g, (whole, name?: string) =>
      name === undefined ? whole.slice(1) : `\${${name}}`,
    );
  if (Array.isArray(value)) return value.map(withBraces);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withBraces(one)]));
}

/** Adds notes for source fields that work differently in this gateway. */
function note(conversion: Conversion, text: string): void {
  const notes: [pattern: RegExp, line: string][] = [
    [
      /"(?:apiKey|jwtAuth|basicAuth)":\{(?![^{}]*"mode")/,
      "authentication without `mode` is strict here; there it is optional",
    ],
    [/"requestTimeout"/, "timeout.requestTimeout: ends with the response head here, with the whole response there"],
    [/"deny"/, "a `deny` rule that cannot be evaluated rejects here; there it lets the request pass"],
    [/"(?:cert|root|file)":/, "paths of files are relative to this file here, to the working directory there"],
    [/"stdio"/, "stdio servers get a safe part of the gateway's environment here; `inheritEnv: true` passes all of it"],
    [
      /"(?:mcp|sse)":\{"(?:host|url)"/,
      "headers of clients do not reach MCP servers here, unless `forwardHeaders` names them",
    ],
    [/llm\.cost/, "llm.cost is a number here, an object there"],
  ];
  for (const [pattern, line] of notes) if (pattern.test(text)) conversion.differs.push(line);
}

const WINDOWS: Readonly<Record<string, string>> = {
  "1s": "Seconds",
  "1m": "Minutes",
  "60s": "Minutes",
  "1h": "Hours",
  "60m": "Hours",
  "3600s": "Hours",
};

type Convert = (value: unknown, at: string, conversion: Conversion) => unknown;

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

/** Rewrites rules without a keyword to `allow`, because they are required conditions in this gateway. */
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

/** Subtracts the first attempt, which agentgateway counts and this gateway does not. */
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

/** Converts the single mirror to a list, and its fraction (0 to 1) to a percentage. */
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

/** Moves the fields of a model that are policies in this gateway to `policies`. */
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
  // agentgateway does not cache tools by default, so this default is written out.
  return present({ system: cacheSystem, messages: cacheMessages, tools: cacheTools ?? false, minTokens, ...others });
}

function present(values: Values): Values {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

// Listeners that share a port become certificates that are selected by server name. If their settings for client
// certificates differ, the routes of listeners with `root` are closed.

const TAKEN = ["cert", "key", "root", "minTLSVersion"];
const CLIENTS = "client certificates (`root`) differ between the listeners of a port";

export interface PortTls {
  readonly tls: Values | undefined;
  readonly conflict: string | undefined;
}

export function tlsOf(tls: Values, at: string, conversion: Conversion): Values {
  const { cert, key, root, minTLSVersion } = tls;
  leaveOutOthers(conversion, `${at}.tls.`, tls, TAKEN, "there is no counterpart");
  return defined({
    cert,
    key,
    minVersion: /1[._]?3/.test(String(minTLSVersion)) ? "TLSv1.3" : undefined,
    clientAuth: root === undefined ? undefined : { ca: root },
  });
}

export function portTls(listeners: readonly Values[], at: string, conversion: Conversion): PortTls {
  const entries = listeners.flatMap(({ tls, hostname }, index) =>
    isObject(tls) ? [{ hostname, ...tlsOf(tls, `${at}.listeners[${index}]`, conversion) } as Values] : [],
  );
  const [first] = entries;
  if (first === undefined) return { tls: undefined, conflict: undefined };
  if (entries.length < listeners.length)
    conversion.differs.push(
      `${at}: a port serves TLS for all of its listeners or for none; this one serves it for all`,
    );
  const { hostname: _hostname, ...only } = first;
  if (entries.length === 1) return { tls: only, conflict: undefined };
  const isSame = (field: string): boolean =>
    entries.every((entry) => JSON.stringify(entry[field]) === JSON.stringify(first[field]));
  const minVersion = entries.some((entry) => entry.minVersion !== undefined) ? "TLSv1.3" : undefined;
  const clientAuth = isSame("clientAuth") ? first.clientAuth : undefined;
  const certificates = entries.map(({ cert, key, hostname }) =>
    defined({ cert, key, hosts: hostname === undefined ? undefined : [hostname] }),
  );
  return {
    tls: defined({ certificates, minVersion, clientAuth }),
    conflict: isSame("clientAuth") ? undefined : CLIENTS,
  };
}
