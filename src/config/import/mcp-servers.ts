/**
 * Converts an MCP client's list of servers (`mcpServers`, or `servers` in VS Code). The servers become targets of one
 * endpoint. With `mcpProxy`, the list belongs to the program mcp-proxy, and each server becomes a route.
 */

import { hostOf } from "../../http/host.ts";
import { defined } from "../../json/json.ts";
import {
  asList,
  asObject,
  type Conversion,
  isObject,
  leaveOutOthers,
  newConversion,
  type Values,
} from "./conversion.ts";

const TAKEN = [
  "command",
  "args",
  "env",
  "cwd",
  "type",
  "transport",
  "url",
  "serverUrl",
  "httpUrl",
  "headers",
  "disabled",
];
const ALLOWED_TOOLS = ["includeTools", "allowedTools", "enabledTools", "enabled_tools", "allowed_tools"];
const DENIED_TOOLS = ["excludeTools", "disabledTools", "blockedTools", "disabled_tools", "disallowed_tools"];
export const TOOL_FILTERS = [...ALLOWED_TOOLS, ...DENIED_TOOLS];
const PROXY_PORT = 9090;
const NO_COUNTERPART = "there is no counterpart";
const BETWEEN_CLIENT_AND_SERVER = "belongs to the client; the gateway has no counterpart";

export function importMcpServers(source: unknown): Conversion {
  const document = asObject(source);
  const servers = asObject(document.mcpServers ?? document.servers ?? asObject(document.mcp).servers);
  if (Object.keys(servers).length === 0) throw new Error("there is no `mcpServers` (or `servers`) with an entry");
  const conversion = newConversion();
  const entries = enabledServers(servers, conversion, isObject(document.mcpProxy));
  if (isObject(document.mcpProxy)) return proxyOf(document.mcpProxy, entries, conversion);
  const targets = entries.map(({ target }) => target);
  conversion.config.mcp = { port: 3000, address: "127.0.0.1", targets };
  for (const { at, entry } of entries)
    leaveOutOthers(conversion, `${at}.`, entry, [...TAKEN, ...TOOL_FILTERS], BETWEEN_CLIENT_AND_SERVER);
  leaveOutOthers(conversion, "", document, ["mcpServers", "servers", "mcp"], BETWEEN_CLIENT_AND_SERVER);
  if (targets.length > 1)
    conversion.differs.push(
      "names of tools carry their server's name (`files_read_file`); `prefixMode: never` keeps them",
    );
  return conversion;
}

interface ServerEntry {
  readonly at: string;
  readonly key: string;
  readonly entry: Values;
  readonly target: Values;
}

function enabledServers(servers: Values, conversion: Conversion, isProxy: boolean): ServerEntry[] {
  return Object.entries(servers).flatMap(([key, entry]) => {
    const at = `mcpServers.${key}`;
    if (!isObject(entry)) {
      conversion.leftOut.push(`${at}: it is not an object`);
      return [];
    }
    if (entry.disabled === true) {
      conversion.leftOut.push(`${at}: it is disabled`);
      return [];
    }
    const target = targetOf(entry, targetName(key, conversion), conversion, isProxy);
    if (target) return [{ at, key, entry, target }];
    conversion.leftOut.push(`${at}: it has neither \`command\` nor \`url\``);
    return [];
  });
}

/** Each server of mcp-proxy has a path and, if it sets `authTokens`, its own tokens. */
function proxyOf(proxy: Values, entries: readonly ServerEntry[], conversion: Conversion): Conversion {
  const { addr, options, ...others } = proxy;
  const { host, port } = listenAddress(addr);
  leaveOutOthers(conversion, "mcpProxy.", others, ["baseURL", "name", "version", "type"], NO_COUNTERPART);
  leaveOutOthers(conversion, "mcpProxy.options.", asObject(options), ["authTokens"], NO_COUNTERPART);
  if (host === undefined)
    conversion.differs.push(
      "mcpProxy.addr: it names no host, so the gateway listens on all interfaces, as mcp-proxy does; set `address: 127.0.0.1` to accept local clients only",
    );
  conversion.config.gateways = { default: defined({ port, address: host }) };
  conversion.config.routes = entries.map(({ at, key, entry, target }) => {
    const own = asObject(entry.options);
    leaveOutOthers(
      conversion,
      `${at}.`,
      entry,
      [...TAKEN, ...TOOL_FILTERS, "options", "transportType"],
      NO_COUNTERPART,
    );
    leaveOutOthers(conversion, `${at}.options.`, own, ["authTokens", "toolFilter"], NO_COUNTERPART);
    const tokens = own.authTokens ?? asObject(options).authTokens;
    return {
      name: String(target.name),
      matches: [{ path: { pathPrefix: `/${key}` } }],
      backends: [{ mcp: { targets: [target] } }],
      ...(tokens === undefined || tokens === null || asList(tokens).length === 0
        ? {}
        : { policies: tokenPolicy(tokens) }),
    };
  });
  return conversion;
}

/** An address without a host (`:9090`) means all interfaces. */
function listenAddress(addr: unknown): { readonly host: string | undefined; readonly port: number } {
  const text = String(addr ?? "");
  const colon = text.lastIndexOf(":");
  const written = text.slice(0, Math.max(0, colon));
  const host = hostOf(written) || written;
  const port = /^\d+$/.test(text.slice(colon + 1)) ? Number(text.slice(colon + 1)) : PROXY_PORT;
  return { host: host === "" ? undefined : host === "localhost" ? "127.0.0.1" : host, port };
}

/** A token that is not a string stays as it is, so that the loader rejects it and the route is closed. */
function tokenPolicy(tokens: unknown): Values {
  return { apiKey: { mode: "strict", keys: [...new Set(asList(tokens))].map((key) => ({ key })) } };
}

export function toolFilters(entry: Values): Values {
  return Object.fromEntries(Object.entries(entry).filter(([name]) => TOOL_FILTERS.includes(name)));
}

function toolsOf(entry: Values): Values | undefined {
  const listed = (names: readonly string[]): unknown[] | undefined => {
    const present = names.filter((name) => entry[name] !== undefined && entry[name] !== null);
    return present.length === 0 ? undefined : present.flatMap((name) => asList(entry[name]));
  };
  const { toolFilter } = asObject(entry.options);
  const { mode, list, ...others } = asObject(toolFilter);
  const filtered = asList(list);
  const isAllowing = String(mode).toLowerCase() === "allow";
  const isBlocking = String(mode).toLowerCase() === "block";
  const tools = defined({
    allow: listed(ALLOWED_TOOLS) ?? (isAllowing && filtered.length > 0 ? filtered : undefined),
    deny: listed(DENIED_TOOLS) ?? (isBlocking && filtered.length > 0 ? filtered : undefined),
    // The loader rejects these fields, and the route is closed.
    ...others,
    mode: toolFilter === undefined || isAllowing || isBlocking ? undefined : (mode ?? null),
  });
  return Object.keys(tools).length === 0 ? undefined : tools;
}

export function targetOf(entry: Values, name: string, conversion: Conversion, isProxy = false): Values | undefined {
  const target = serverOf(entry, name, conversion, isProxy);
  const tools = target && toolsOf(entry);
  return tools === undefined ? target : { ...target, tools };
}

/** Without a transport, mcp-proxy uses SSE, and clients try it if the path suggests it. */
function isEventStream(transport: unknown, url: string, isProxy: boolean): boolean {
  const named = String(transport ?? "");
  return named === "" ? isProxy || /\/sse\/?(?:[?#]|$)/.test(url) : /sse/i.test(named);
}

function serverOf(entry: Values, name: string, conversion: Conversion, isProxy: boolean): Values | undefined {
  const url = entry.url ?? entry.serverUrl ?? entry.httpUrl;
  if (typeof url === "string") {
    const kind = isEventStream(entry.transportType ?? entry.type ?? entry.transport, url, isProxy) ? "sse" : "mcp";
    const headers = textValues(entry.headers, conversion);
    return { name, [kind]: { url: variables(url, conversion), ...(headers ? { headers } : {}) } };
  }
  if (typeof entry.command !== "string") return undefined;
  const [program = "", ...first] =
    entry.command.includes(" ") && entry.args === undefined ? words(entry.command) : [entry.command];
  const args = [...first, ...asList(entry.args).map(String)].map((text) => variables(text, conversion));
  const env = textValues(entry.env, conversion);
  noteOnce(conversion, `${name}: the server gets a safe part of the gateway's environment, and what \`env\` names`);
  if (args.some((arg) => arg.startsWith("~"))) conversion.differs.push(`${name}: \`~\` in an argument is not replaced`);
  return {
    name,
    stdio: {
      cmd: variables(program, conversion),
      ...(args.length > 0 ? { args } : {}),
      ...(env ? { env } : {}),
      ...(typeof entry.cwd === "string" ? { cwd: variables(entry.cwd, conversion) } : {}),
    },
  };
}

/** The name of a tool is the target name, an underscore, and the tool name, so target names contain no underscore. */
export function targetName(key: string, conversion: Conversion): string {
  const name = key.replaceAll(/[^A-Za-z0-9.-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "server";
  if (name !== key) conversion.differs.push(`${key}: is called ${name} here`);
  return name;
}

export function words(line: string): string[] {
  return [...line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)].map(([, double, single, plain]) =>
    double !== undefined ? double.replaceAll(/\\(.)/g, "$1") : (single ?? plain ?? ""),
  );
}

function textValues(values: unknown, conversion: Conversion): Record<string, string> | undefined {
  if (!isObject(values) || Object.keys(values).length === 0) return undefined;
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, variables(String(value), conversion)]),
  );
}

/** Rewrites variables of editors, such as `${env:NAME}` and `${input:name}`, to environment variables. */
function variables(text: string, conversion: Conversion): string {
  return text.replaceAll(
    /\$\{(env|input):([^}]+)\}|\$\{(\w+)\}/g,
    (whole, kind: string, name: string, plain: string) => {
      if (plain !== undefined && !/^(?:workspaceFolder|userHome|cwd)$/.test(plain)) return whole;
      const variable = (plain ?? name).replaceAll(/\W+/g, "_").toUpperCase();
      if (kind !== "env") noteOnce(conversion, `${whole} is the environment variable ${variable} of the gateway here`);
      return `\${${kind === "env" ? name : variable}}`;
    },
  );
}

function noteOnce(conversion: Conversion, line: string): void {
  if (!conversion.differs.includes(line)) conversion.differs.push(line);
}
