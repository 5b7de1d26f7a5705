/**
 * Converts a configuration of agentgateway, in either of its layouts, by rewriting fields with another name or shape.
 */
import { defined } from "../../json/json.ts";
import { externalAuthorization } from "./agentgateway-authorization.ts";
import { withAgentCore, withCloudNames } from "./agentgateway-cloud.ts";
import { guardsOf } from "./agentgateway-guards.ts";
import { llmOf } from "./agentgateway-llm.ts";
import { mcpGuardrailsOf } from "./agentgateway-mcp-guardrails.ts";
import { crossAppOf, oauthOf } from "./agentgateway-oauth.ts";
import { processOf } from "./agentgateway-process.ts";
import { addTunnelRoutes, isConnectBind, isTcpListener, tcpListener, tcpRouteOf } from "./agentgateway-tcp.ts";
import { portTls, tlsOf } from "./agentgateway-tls.ts";
import {
  asList,
  asObject,
  type Conversion,
  close,
  isObject,
  leaveOutOthers,
  newConversion,
  protectingPolicy,
  protectionIn,
  type Values,
} from "./conversion.ts";

const LISTENER = ["port", "protocol", "address", "tls", "policies"];

export function importAgentgateway(source: unknown): Conversion {
  if (!isObject(source)) throw new Error("the file has no fields");
  const { config: process, frontendPolicies, policies, backends, ...file } = withBraces(source) as Values;
  const { binds, gateways, routes, tcpRoutes, mcp, llm, ui, ...others } = withNamedBackends(file, backends) as Values;
  const conversion = newConversion({});
  const { config } = conversion;
  const settings = processOf(process, frontendPolicies, conversion);
  if (settings !== undefined) config.config = settings;
  const listeners: Values = {};
  const allRoutes: Values[] = [];
  const connectionRoutes: Values[] = [];
  addBinds(asList(binds), listeners, allRoutes, connectionRoutes, conversion);
  const hosts = addGateways(asObject(gateways), listeners, conversion);
  for (const [index, route] of asList(routes).entries()) {
    const at = `routes[${index}]`;
    allRoutes.push(onListeners(routeOf(asObject(route), at, conversion), hosts, at, conversion));
  }
  for (const [index, one] of asList(tcpRoutes).entries()) {
    const at = `tcpRoutes[${index}]`;
    const names = asList(asObject(one).gateways ?? "default").map(String);
    const served = [...new Set(names.map((name) => name.split("/")[0] ?? ""))];
    if (served.some((name) => !isTcpListener(asObject(listeners[name]))))
      conversion.leftOut.push(`${at}: its gateways (${names.join(", ")}) were not imported`);
    else connectionRoutes.push(...tcpRouteOf(asObject(one), served, hosts.get(names[0] ?? ""), at, conversion));
  }
  addTunnelRoutes(listeners, connectionRoutes, allRoutes, conversion);
  if (Object.keys(listeners).length > 0) config.gateways = listeners;
  if (allRoutes.length > 0) config.routes = allRoutes;
  if (connectionRoutes.length > 0) config.tcpRoutes = connectionRoutes;
  if (isObject(mcp)) config.mcp = sectionOf(mcpOf(mcp, "mcp", conversion), "mcp", listeners, conversion);
  if (isObject(llm)) config.llm = sectionOf(llmOf(llm, convertPolicies, conversion), "llm", listeners, conversion);
  if (ui !== undefined) config.ui = isObject(ui) ? withPolicies(ui, "ui", conversion) : ui;
  addSessionTtl(config, asObject(asObject(process).mcp).sessionTtl);
  attachPolicies(asList(policies), conversion);
  restrictNetwork(asObject(frontendPolicies).networkAuthorization, conversion);
  forwardCredentials(conversion);
  Object.assign(config, others);
  note(conversion, JSON.stringify(source));
  return conversion;
}

/** Replaces references to entries of the top-level `backends` with the entries. */
function withNamedBackends(value: unknown, backends: unknown): unknown {
  const named = new Map(asList(backends).map((one) => [String(asObject(one).name), asObject(one)]));
  const replaced = (one: unknown): unknown => {
    if (Array.isArray(one)) return one.map(replaced);
    if (!isObject(one)) return one;
    const found = typeof one.backend === "string" ? named.get(one.backend.replace(/^\//, "")) : undefined;
    if (found === undefined)
      return Object.fromEntries(Object.entries(one).map(([name, field]) => [name, replaced(field)]));
    const { name: _name, ...backend } = found;
    const { backend: _reference, policies, ...others } = one;
    const own = { ...asObject(backend.policies), ...asObject(policies) };
    return { ...backend, ...others, ...(Object.keys(own).length === 0 ? {} : { policies: own }) };
  };
  return named.size === 0 ? value : replaced(value);
}

/** MCP servers get a header that a policy sets only if their target forwards it, and sign requests in the target. */
function forwardCredentials(conversion: Conversion): void {
  const { config } = conversion;
  const owners = [
    ...asList(config.routes).map(asObject).flatMap(servedByMcp),
    { mcp: config.mcp, policies: asObject(config.mcp).policies, isWhole: true },
  ];
  for (const { mcp, policies, isWhole } of owners) {
    const { backendAuth } = asObject(policies);
    if (!isObject(mcp) || !isObject(backendAuth)) continue;
    const name = asObject(backendAuth.header).name ?? "authorization";
    for (const target of asList(mcp.targets)) {
      const { name: server, mcp: streamable, sse, openapi } = asObject(target);
      if (openapi !== undefined && backendAuth.aws !== undefined)
        conversion.leftOut.push(
          `backendAuth.aws: requests of the OpenAPI target ${String(server)} are not signed here`,
        );
      const remote = streamable ?? sse;
      if (!isObject(remote)) continue;
      if (backendAuth.aws === undefined) remote.forwardHeaders ??= [name];
      else remote.aws ??= backendAuth.aws;
    }
    if (backendAuth.aws !== undefined && isWhole) delete (policies as Values).backendAuth;
  }
}

/** The MCP backends of a route, each with the policies that hold its credential and whether these are only for it. */
function servedByMcp(route: Values): { mcp: unknown; policies: unknown; isWhole: boolean }[] {
  const backends = asList(route.backends).map(asObject);
  return backends.map(({ mcp, policies }) => {
    const isOwn = asObject(policies).backendAuth !== undefined;
    return { mcp, policies: isOwn ? policies : route.policies, isWhole: isOwn || backends.length === 1 };
  });
}

function addSessionTtl(config: Values, sessionTtl: unknown): void {
  if (sessionTtl === undefined) return;
  const backends = asList(config.routes).flatMap((route) => asList(asObject(route).backends));
  for (const mcp of [config.mcp, ...backends.map((backend) => asObject(backend).mcp)])
    if (isObject(mcp)) mcp.sessionIdleTtl ??= sessionTtl;
}

/**
 * Adds each entry of the top-level `policies` to its target. If an entry contains a protecting policy and its target is
 * not found, all gateways and the `mcp` and `llm` sections are closed, because the affected requests are unknown.
 */
function attachPolicies(entries: readonly unknown[], conversion: Conversion): void {
  for (const [index, entry] of entries.entries()) {
    const { name, target, policy } = asObject(entry);
    const at = `policies[${index}]${typeof name === "string" ? ` (${name})` : ""}`;
    const owners = targetsOf(asObject(target), conversion.config);
    for (const owner of owners) addPolicies(owner, asObject(policy), at, conversion);
    if (owners.length > 0) continue;
    conversion.leftOut.push(`${at}: its target was not found`);
    const protecting = protectionIn(policy);
    if (protecting === undefined) continue;
    for (const [owner, label] of scopesOf(conversion.config))
      close(conversion, owner, label, `the ${protecting} of ${at} was not imported`);
  }
}

function targetsOf(target: Values, config: Values): Values[] {
  const route = isObject(target.route) ? target.route.name : target.route;
  if (typeof route === "string")
    return asList(config.routes).filter((one): one is Values => isObject(one) && one.name === route);
  const { gatewayName, name = gatewayName, listenerName } = asObject(target.gateway);
  const gateway = typeof target.gateway === "string" ? target.gateway : name;
  if (typeof gateway !== "string" || listenerName !== undefined) return [];
  // In agentgateway, all binds belong to the gateway `default`.
  return Object.entries(asObject(config.gateways))
    .filter(([key]) => key === gateway || (gateway === "default" && key.startsWith("port-")))
    .flatMap(([, found]) => (isObject(found) ? [found] : []));
}

function scopesOf(config: Values): [owner: Values, label: string][] {
  const gateways = Object.entries(asObject(config.gateways)).map(([name, one]) => [one, `gateways.${name}`]);
  const sections = ["mcp", "llm", "ui"].map((name) => [config[name], name]);
  return [...gateways, ...sections].filter((one): one is [Values, string] => isObject(one[0]));
}

/** agentgateway applies these rules to connections. Here they apply to each request. */
function restrictNetwork(policy: unknown, conversion: Conversion): void {
  if (policy === undefined) return;
  for (const [owner, label] of scopesOf(conversion.config))
    addPolicies(owner, { authorization: policy }, `frontendPolicies.networkAuthorization (${label})`, conversion);
}

/**
 * Adds a listener for each bind. The host name of an agentgateway listener becomes the default host name of its
 * routes.
 */
function addBinds(
  binds: readonly unknown[],
  listeners: Values,
  routes: Values[],
  connectionRoutes: Values[],
  conversion: Conversion,
): void {
  for (const [index, bind] of binds.entries()) {
    const { port, listeners: list, ...others } = asObject(bind);
    const name = Object.keys(listeners).length === 0 ? "default" : `port-${String(port)}`;
    const at = `binds[${index}]`;
    if (isConnectBind(others, list)) {
      listeners[name] = defined({ port, address: others.address, forwardProxy: true });
      continue;
    }
    if (isTunnel(others)) {
      conversion.leftOut.push(`${at} (port ${String(port)}): listeners of tunnels have no counterpart`);
      continue;
    }
    const entries = asList(list).map(asObject);
    if (entries.some(isTcpListener)) {
      const forwarding = tcpListener({ port, ...others }, entries, portTls(entries, at, conversion), at, conversion);
      if (forwarding === undefined) continue;
      listeners[name] = forwarding;
      for (const [number, { tcpRoutes, hostname }] of entries.entries())
        for (const [i, one] of asList(tcpRoutes).entries()) {
          const place = `${at}.listeners[${number}].tcpRoutes[${i}]`;
          connectionRoutes.push(...tcpRouteOf(asObject(one), name, hostname, place, conversion));
        }
      continue;
    }
    const { listener, conflict } = portListener({ port, ...others }, entries, at, conversion);
    listeners[name] = listener;
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

/** Without its tunnel, such a listener would accept connections from any client. */
function isTunnel({ mode, tunnelProtocol }: Values): boolean {
  return (mode ?? "standard") !== "standard" || (tunnelProtocol ?? "direct") !== "direct";
}

function portListener(
  own: Values,
  entries: readonly Values[],
  at: string,
  conversion: Conversion,
): { listener: Values; conflict: string | undefined } {
  const [first = {}] = entries;
  const { protocol } = first;
  const { tls, conflict } = portTls(entries, at, conversion);
  const policies = entries.length === 1 ? first.policies : undefined;
  const { mode: _mode, tunnelProtocol: _tunnel, ...fields } = own;
  return { listener: listenerOf({ ...fields, ...defined({ policies, protocol, tls }) }, at, conversion), conflict };
}

/** Returns the host names of nested listeners, keyed by `gateway/listener`. */
function addGateways(gateways: Values, listeners: Values, conversion: Conversion): Map<string, unknown> {
  const hosts = new Map<string, unknown>();
  for (const [name, value] of Object.entries(gateways)) {
    const at = `gateways.${name}`;
    const { listeners: list, ...gateway } = asObject(value);
    if (list === undefined) {
      listeners[name] = listenerOf(withTls(gateway, at, conversion), at, conversion);
      continue;
    }
    const all = asList(list).map(asObject);
    if (all.length > 0 && all.every(isTcpListener)) {
      const forwarding = tcpListener(gateway, all, portTls(all, at, conversion), at, conversion);
      if (forwarding !== undefined) listeners[name] = forwarding;
      for (const entry of all) hosts.set(`${name}/${String(entry.name)}`, entry.hostname);
      continue;
    }
    const entries = all.filter((entry) => {
      const isHttp = /^https?$/i.test(String(entry.protocol ?? "HTTP"));
      if (!isHttp)
        conversion.leftOut.push(
          `${at}.listeners (${String(entry.name)}): ${String(entry.protocol)} has no counterpart beside HTTP`,
        );
      return isHttp;
    });
    if (entries.length === 0) continue;
    const { listener, conflict } = portListener(gateway, entries, at, conversion);
    listeners[name] = listener;
    const isProtected = entries.length > 1 && entries.some(({ policies }) => isObject(policies));
    if (conflict !== undefined || isProtected)
      close(conversion, listener, at, conflict ?? "its listeners have policies of their own");
    for (const entry of entries) hosts.set(`${name}/${String(entry.name)}`, entry.hostname);
  }
  return hosts;
}

/** In agentgateway, a route can name a listener as `gateway/listener`. */
function onListeners(route: Values, hosts: ReadonlyMap<string, unknown>, at: string, conversion: Conversion): Values {
  const names = asList(route.gateways).map(String);
  if (!names.some((name) => name.includes("/"))) return route;
  const gateways = [...new Set(names.map((name) => name.split("/")[0] ?? ""))];
  const known = names.map((name) => hosts.get(name));
  const hostnames = known.every((host) => typeof host === "string" && host !== "*") ? known : undefined;
  const placed: Values = {
    ...route,
    gateways,
    ...(hostnames === undefined ? {} : { hostnames: route.hostnames ?? hostnames }),
  };
  if (names.some((name) => name.includes("/") && !hosts.has(name)))
    close(conversion, placed, at, `its gateways (${names.join(", ")}) were not imported`);
  return placed;
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
 * Adds policies to an object, which has at most one policy of each kind. Two protecting policies of the same kind close
 * the object, because neither alone is sufficient. `authorization` rules are joined if all of them are required.
 */
function addPolicies(route: Values, ofListener: Values, at: string, conversion: Conversion): void {
  const own = asObject(route.policies);
  const added = convertPolicies(ofListener, at, conversion);
  const both = Object.keys(added).filter((kind) => kind in own);
  route.policies = { ...added, ...own };
  for (const kind of both) {
    const rules = [...asList(asObject(added[kind]).rules), ...asList(asObject(own[kind]).rules)];
    if (kind === "authorization" && rules.every(isRequired)) {
      route.policies = { ...asObject(route.policies), authorization: { rules } };
      continue;
    }
    conversion.leftOut.push(`${at}.${kind}: the route has one of its own`);
    if (protectingPolicy([at, kind]) !== undefined)
      close(conversion, route, `a route of ${at}`, `it has two of ${kind}`);
  }
}

/** Lists of these rules can be joined. Lists of `allow` rules cannot, because one matching rule is sufficient. */
function isRequired(rule: unknown): boolean {
  return isObject(rule) && (rule.require !== undefined || rule.deny !== undefined);
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
  const { a2a, ...rest } = asObject(policies);
  const isAgent = a2a !== undefined && asList(backends).every((one) => typeof asObject(one).host === "string");
  if (a2a !== undefined && !isAgent) conversion.leftOut.push(`${at}.policies.a2a: write a backend \`a2a\``);
  const backendList = asList(backends).map((one, i) =>
    backendOf(isAgent ? agentOf(asObject(one)) : asObject(one), `${at}.backends[${i}]`, conversion),
  );
  return {
    ...others,
    ...(matches === undefined ? {} : { matches: asList(matches).map(matchOf) }),
    ...(backends === undefined ? {} : { backends: backendList }),
    ...(isObject(policies) ? { policies: convertPolicies(rest, `${at}.policies`, conversion) } : {}),
  };
}

/** Here an agent is an `a2a` backend instead of a host with the policy `a2a`. */
function agentOf({ host, ...others }: Values): Values {
  return { ...others, a2a: { url: urlOf(String(host), undefined, "", "") } };
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

function backendOf(written: Values, at: string, conversion: Conversion): Values {
  const { mcp, ai, policies, ...others } = withAgentCore(written);
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
  const { policies, provider, ...rest } = ai;
  const others = provider === undefined ? rest : { ...rest, provider: withCopilot(provider) };
  const { backendAuth, ...more } = asObject(policies);
  // The loader rejects policies of one provider. If one of them protects, the route is closed.
  const rejected = isObject(policies) ? more : policies;
  const hasPolicies = !isObject(rejected) || Object.keys(rejected).length > 0;
  return defined({ ...others, auth: backendAuth, policies: hasPolicies ? rejected : undefined });
}

/** Below `ai`, servers with an OpenAI-compatible API have no names of their own here. */
function withCopilot(provider: unknown): unknown {
  const { copilot, ...others } = asObject(provider);
  if (!isObject(copilot)) return provider;
  return { ...others, openAICompatible: { ...copilot, baseUrl: "https://api.githubcopilot.com", name: "copilot" } };
}

function mcpOf(mcp: Values, at: string, conversion: Conversion): Values {
  const targets = asList(mcp.targets).flatMap((one, index) => {
    const target = targetOf(asObject(one), `${at}.targets[${index}]`, conversion);
    const kinds = Object.keys(target).filter((field) => !["name", "policies"].includes(field));
    if (kinds.some((kind) => ["stdio", "mcp", "sse", "openapi"].includes(kind))) return [target];
    conversion.leftOut.push(`${at}.targets[${index}] (${String(target.name)}): ${kinds.join(", ")} has no counterpart`);
    return [];
  });
  if (mcp.failureMode === undefined && targets.length > 1)
    conversion.differs.push(
      `${at}.failureMode: written out, because the default differs (there failClosed, here failOpen)`,
    );
  return { ...mcp, targets, ...(targets.length > 1 ? { failureMode: mcp.failureMode ?? "failClosed" } : {}) };
}

function targetOf(target: Values, at: string, conversion: Conversion): Values {
  if (isObject(target.openapi)) {
    const { schema, host, port, path, ...others } = target.openapi;
    leaveOutOthers(conversion, `${at}.openapi.`, others, [], "there is no counterpart");
    return { ...target, openapi: { ...asObject(schema), server: urlOf(String(host), port, path, "") } };
  }
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

/** A section without a port uses the first imported gateway that it names. Its default is the gateway `default`. */
function sectionOf(section: Values, at: string, listeners: Values, conversion: Conversion): Values {
  const { gateways, ...own } = section;
  const names = asList(gateways ?? "default").map((name) => String(name).split("/")[0] ?? "");
  const [gateway] = names.filter((name) => Object.hasOwn(listeners, name));
  const isShared = own.port === undefined && gateway !== undefined;
  if (gateways !== undefined && (!isShared || names.length > 1 || String(gateways).includes("/")))
    conversion.leftOut.push(`${at}.gateways: here it is the name of one gateway`);
  if (at === "llm" && own.port === undefined && !isShared)
    conversion.differs.push("llm: listens on a port of its own here, 4000");
  return withPolicies(isShared ? { ...own, gateway } : own, at, conversion);
}

function withPolicies(section: Values, at: string, conversion: Conversion): Values {
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
    [/"deny":/, "a `deny` rule that cannot be evaluated rejects here; there it lets the request pass"],
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

const UNIT_SECONDS: readonly [unit: string, seconds: number][] = [
  ["Seconds", 1],
  ["Minutes", 60],
  ["Hours", 3_600],
];

type Convert = (value: unknown, at: string, conversion: Conversion) => unknown;

const SAME_NAME: Readonly<Record<string, Convert>> = {
  authorization: (value) => withRules(value),
  mcpAuthorization: (value) => withRules(value),
  mcpAuthentication: (value) => withProvider(value),
  retry: (value, at, conversion) => withAttempts(value, at, conversion),
  urlRewrite: (value) => withAuthority(value),
  requestRedirect: (value) => withAuthority(value),
  backendAuth: (value, at, conversion) => withLocation(value, at, conversion),
  requestMirror: (value) => withShare(value),
  ai: (value, at, conversion) => withoutFormats(value, at, conversion),
  apiKey: (value) => withModels(value),
  basicAuth: (value) => withCredentialLocation(value),
  oidc: (value, at, conversion) => withClient(value, at, conversion),
  cors: (value, at, conversion) => withoutUselessCredentials(value, at, conversion),
  directResponse: (value) => withLiteralHeaders(value),
  extAuthz: (value) => externalAuthorization(value),
  mcpGuardrails: (value, at, conversion) => mcpGuardrailsOf(value, at, conversion),
};

export function convertPolicies(policies: Values, at: string, conversion: Conversion): Values {
  const { localRateLimit, remoteRateLimit, transformation, guardrails, ...others } = policies;
  const converted: Values = {};
  if (guardrails !== undefined) others.ai = { ...asObject(others.ai), promptGuard: guardrails };
  for (const [name, value] of Object.entries(others))
    converted[name] = SAME_NAME[name]?.(value, `${at}.${name}`, conversion) ?? value;
  if (transformation !== undefined) converted.transformations = transformation;
  const local = asList(localRateLimit).length === 0 ? undefined : localLimits(localRateLimit, at, conversion);
  // The loader rejects a limit that is not an object, and the route is closed.
  const global = isObject(remoteRateLimit) ? globalLimit(remoteRateLimit, at, conversion) : remoteRateLimit;
  if (local !== undefined || global !== undefined) converted.rateLimit = defined({ local, global });
  return converted;
}

/** Rewrites rules without a keyword to `allow`, because they are required conditions in this gateway. */
function withRules(value: unknown): unknown {
  const rules = asList(asObject(value).rules).map((rule) => (typeof rule === "string" ? { allow: rule } : rule));
  return { ...asObject(value), rules };
}

function withModels(value: unknown): unknown {
  const { keys, ...others } = asObject(value);
  if (!Array.isArray(keys)) return value;
  const renamed = keys.map((entry) => {
    const { allowedModels, ...key } = asObject(entry);
    return allowedModels === undefined ? entry : { ...key, models: allowedModels };
  });
  return { ...others, keys: renamed };
}

function withProvider(value: unknown): unknown {
  const { provider, ...others } = asObject(value);
  const [name] = Object.keys(asObject(provider));
  if (provider === undefined) return others;
  const ours = name === "keycloak" ? "idp_realm" : name === "entra" ? "idp_tenant" : name;
  return { ...others, provider: ours === undefined ? provider : { [ours]: asObject(provider)[name ?? ""] ?? {} } };
}

function withoutFormats(value: unknown, at: string, conversion: Conversion): unknown {
  const { routes, promptGuard, ...rest } = asObject(value);
  const others = promptGuard === undefined ? rest : { ...rest, promptGuard: guardsOf(promptGuard, at, conversion) };
  if (routes !== undefined)
    conversion.differs.push(`${at}.routes: the format of a request is recognized by its path here`);
  return others;
}

const CLIENT_AUTH: Readonly<Record<string, string>> = { clientSecretBasic: "basic", clientSecretPost: "post" };

/** agentgateway always requests the scope `openid`. */
function withClient(value: unknown, at: string, conversion: Conversion): unknown {
  const { redirectURI, tokenEndpointAuth, scopes, ...others } = asObject(value);
  const clientAuth = tokenEndpointAuth === undefined ? undefined : CLIENT_AUTH[String(tokenEndpointAuth)];
  if (tokenEndpointAuth !== undefined && clientAuth === undefined)
    conversion.leftOut.push(
      `${at}.tokenEndpointAuth: here the secret is sent as clientSecretBasic or clientSecretPost`,
    );
  return defined({
    ...others,
    redirectUri: redirectURI ?? others.redirectUri,
    clientAuth,
    scopes: Array.isArray(scopes) ? ["openid", ...scopes.filter((scope) => scope !== "openid")] : scopes,
  });
}

function withCredentialLocation(value: unknown): unknown {
  const { authorizationLocation, ...others } = asObject(value);
  return authorizationLocation === undefined ? value : { ...others, location: authorizationLocation };
}

/** Header values of direct responses are CEL expressions there and strings here, so literals lose their quotes. */
function withLiteralHeaders(value: unknown): unknown {
  const { headers, conditional, ...others } = asObject(value);
  const literals = Object.entries(asObject(headers)).map(([name, source]): [string, unknown] => [
    name,
    /^"[^"\\]*"$|^'[^'\\]*'$/.test(String(source)) ? String(source).slice(1, -1) : source,
  ]);
  return defined({
    ...others,
    headers: headers === undefined ? undefined : Object.fromEntries(literals),
    conditional: Array.isArray(conditional) ? conditional.map(withLiteralHeaders) : conditional,
  });
}

/** For a request with credentials, browsers reject the allowed origin `*`. */
function withoutUselessCredentials(value: unknown, at: string, conversion: Conversion): unknown {
  const { allowCredentials, ...others } = asObject(value);
  if (allowCredentials !== true || !asList(others.allowOrigins).includes("*")) return value;
  conversion.differs.push(`${at}.allowCredentials: browsers ignore it with the origin "*", so it is not set here`);
  return others;
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

function withLocation(value: unknown, at: string, conversion: Conversion): unknown {
  const { key, oauthTokenExchange, crossAppAccess, ...others } = withCloudNames(asObject(value));
  if (isObject(oauthTokenExchange)) return { ...others, oauth: oauthOf(oauthTokenExchange, at, conversion) };
  if (isObject(crossAppAccess)) return { ...others, crossAppAccess: crossAppOf(crossAppAccess, at, conversion) };
  if (isObject(others.jwtSign)) {
    const { location, ...jwtSign } = others.jwtSign;
    // The loader rejects a location that is not a header, and the route is closed.
    return hasPlace(location) ? { ...others, jwtSign, ...asObject(location) } : value;
  }
  if (!isObject(key) || key.value === undefined || !hasPlace(key.location)) return defined({ key, ...others });
  return { ...others, key: key.value, ...asObject(key.location) };
}

function hasPlace(location: unknown): boolean {
  return location === undefined || (isObject(location) && Object.keys(location).join() === "header");
}

/** Keeps a limit that cannot be converted unchanged, so that validation rejects it. */
function localLimits(value: unknown, at: string, conversion: Conversion): unknown[] {
  return asList(value).map((one, index): unknown => {
    const { maxTokens, tokensPerFill, fillInterval, type, ...others } = asObject(one);
    const place = `${at}.localRateLimit[${index}]`;
    const perFill = Number(tokensPerFill ?? maxTokens);
    const window = windowOf(perFill, Number(maxTokens ?? perFill), String(fillInterval));
    if (window === undefined) return one;
    for (const name of Object.keys(others)) conversion.leftOut.push(`${place}.${name}: there is no counterpart`);
    const { unit, base, isExact } = window;
    if (!isExact)
      conversion.differs.push(`${place}: ${perFill} per ${String(fillInterval)} became ${base} per unit (${unit})`);
    if (type === "tokens") return { tokens: base, unit };
    const burst = Number(maxTokens ?? base) - base;
    return { requests: base, unit, ...(burst > 0 ? { burst } : {}) };
  });
}

/**
 * Prefers the unit that equals the interval, then the shortest unit in which the rate is a whole number that the bucket
 * can hold. Returns undefined if the interval is not a positive duration or `perFill` is not positive.
 */
function windowOf(
  perFill: number,
  capacity: number,
  interval: string,
): { unit: string; base: number; isExact: boolean } | undefined {
  const seconds = secondsOf(interval);
  if (seconds === undefined || !(perFill > 0)) return undefined;
  const rates = UNIT_SECONDS.map(([unit, length]) => ({ unit, length, rate: (perFill * length) / seconds }));
  const same = rates.find(({ length }) => length === seconds);
  const exact = same ?? rates.find(({ rate }) => Number.isInteger(rate) && rate <= capacity);
  if (exact !== undefined) return { unit: exact.unit, base: exact.rate, isExact: exact === same };
  const nearest = rates.find(({ rate }) => rate >= 1) ?? rates.at(-1);
  return nearest && { unit: nearest.unit, base: Math.max(1, Math.floor(nearest.rate)), isExact: false };
}

function secondsOf(duration: string): number | undefined {
  const found = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(duration);
  if (found === null) return undefined;
  const unit = { ms: 0.001, s: 1, m: 60, h: 3_600 }[found[2] ?? "s"] ?? 1;
  const seconds = Number(found[1]) * unit;
  return seconds > 0 ? seconds : undefined;
}

function globalLimit(value: Values, at: string, conversion: Conversion): Values {
  const { failureMode, descriptors, ...others } = value;
  const mode = /open$/i.test(String(failureMode ?? "")) ? "open" : "closed";
  const list = asList(descriptors).map((one, index) => {
    const { entries, type, ...more } = asObject(one);
    for (const name of Object.keys(more))
      conversion.leftOut.push(`${at}.remoteRateLimit.descriptors[${index}].${name}: there is no counterpart`);
    return { entries, ...defined({ type }) };
  });
  return { ...others, failureMode: mode, descriptors: list };
}
