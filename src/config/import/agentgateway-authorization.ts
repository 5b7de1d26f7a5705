/**
 * Converts agentgateway's external authorization. Fields without a counterpart stay as they are, so that the loader
 * rejects them and their route is closed.
 */
import { defined } from "../../json/json.ts";
import { asObject, isObject, type Values } from "./conversion.ts";

const LITERAL = /^\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*$/;
const FAILURE_MODES: Readonly<Record<string, string>> = { allow: "open", deny: "closed" };

export function externalAuthorization(value: unknown): unknown {
  const { host, protocol, includeRequestHeaders, failureMode, ...others } = asObject(value);
  const { http, ...otherProtocols } = asObject(protocol);
  const common = defined({
    ...others,
    headers: includeRequestHeaders,
    failureMode: typeof failureMode === "string" ? (FAILURE_MODES[failureMode] ?? failureMode) : failureMode,
  });
  if (!isObject(http)) return defined({ ...common, host, protocol });
  const rest = Object.keys(otherProtocols).length === 0 ? undefined : otherProtocols;
  return defined({ ...common, ...httpOf(String(host ?? ""), http), protocol: rest });
}

function httpOf(host: string, http: Values): Values {
  const { path, addRequestHeaders, includeResponseHeaders, ...others } = http;
  const { ":method": method, ":authority": authority, ...headers } = asObject(addRequestHeaders);
  const socket = host.startsWith("unix:") ? host.slice("unix:".length) : undefined;
  const origin = socket === undefined ? originOf(host) : `http://${literalIn(authority) ?? "localhost"}`;
  // Without a socket, the host of the service is also the Host header.
  const isOwnAuthority = authority === undefined || (socket !== undefined && literalIn(authority) !== undefined);
  const fixed = literalIn(path);
  const entries = Object.entries(headers);
  // The gateway sends the host of the request in this header itself.
  const context = entries.filter(([name, source]) => !name.startsWith(":") && !isOwnHost(name, source));
  const pseudo = [
    ...entries.filter(([name]) => name.startsWith(":")),
    ...(isOwnAuthority ? [] : [[":authority", authority] as const]),
  ];
  return defined({
    ...others,
    url: fixed?.startsWith("/") ? `${origin}${fixed}` : origin,
    socket,
    path: fixed === undefined ? path : undefined,
    method: method === undefined ? undefined : (literalIn(method) ?? method),
    context: context.length === 0 ? undefined : Object.fromEntries(context),
    addRequestHeaders: pseudo.length === 0 ? undefined : Object.fromEntries(pseudo),
    accept: includeResponseHeaders,
  });
}

function originOf(host: string): string {
  return /^https?:\/\//.test(host) ? host : `${host.endsWith(":443") ? "https" : "http"}://${host}`;
}

function literalIn(source: unknown): string | undefined {
  const found = LITERAL.exec(String(source));
  return found === null ? undefined : (found[1] ?? found[2]);
}

function isOwnHost(name: string, source: unknown): boolean {
  return name.toLowerCase() === "x-forwarded-host" && String(source).trim() === "request.host";
}
