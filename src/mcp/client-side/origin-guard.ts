/**
 * Protects MCP servers against requests from web pages (DNS rebinding and cross-site requests).
 */
import { escapeControls } from "../../base/safe-text.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { isLoopbackPeer } from "../../core/source.ts";

/** Host names have no port. `*.example.com` matches all subdomains. */
export interface TrustedHosts {
  has(host: string): boolean;
}

const QUOTED_CHARS = 100;

export const ANY_HOST: TrustedHosts = { has: () => true };

export function trustedHosts(names: readonly string[]): TrustedHosts {
  const exact = new Set(names.map(parseHostName));
  const suffixes = names.filter((name) => name.startsWith("*.")).map((name) => name.slice(1).toLowerCase());
  return { has: (host) => exact.has(host) || suffixes.some((suffix) => host.endsWith(suffix)) };
}

/** Throws `origin_denied` if the host or the origin is not allowed. */
export function guardOrigin(exchange: Exchange, trusted: TrustedHosts): void {
  const { request, source } = exchange;
  // A page that uses DNS rebinding can add forwarding headers, so forwarded requests are checked too.
  if (isLoopbackPeer(source) && !isAllowedHost(request.host, trusted)) {
    const host = parseHostName(request.host);
    throw new GatewayError("origin_denied", {
      message: `the host "${escapeControls(host).slice(0, QUOTED_CHARS)}" is not allowed over a loopback address: add it to the MCP backend's "allowedHosts" or in the route's "hostnames"`,
    });
  }
  const origin = request.headers.get("origin");
  if (origin === undefined || exchange.originAllowed === true || isOwnOrigin(origin, request.host)) return;
  throw new GatewayError("origin_denied", {
    message: `the origin "${escapeControls(origin).slice(0, QUOTED_CHARS)}" is not allowed: add it to the route's "cors.allowOrigins"`,
  });
}

function isAllowedHost(authority: string, trusted: TrustedHosts): boolean {
  const host = parseHostName(authority);
  return isLoopbackName(host) || trusted.has(host);
}

/** Removes the port, the brackets, and a trailing dot, and converts to lower case. */
export function parseHostName(authority: string): string {
  if (authority !== lastAuthority) {
    lastName = extractHostName(authority);
    lastAuthority = authority;
  }
  return lastName;
}

/** Caches the last result, because the requests of a connection usually have the same host. */
let lastAuthority = "";
let lastName = "";

function extractHostName(authority: string): string {
  const lower = authority.toLowerCase();
  if (lower.startsWith("[")) return lower.slice(1, Math.max(1, lower.indexOf("]")));
  const colon = lower.indexOf(":");
  const name = colon < 0 ? lower : lower.slice(0, colon);
  return name.endsWith(".") ? name.slice(0, -1) : name;
}

function isOwnOrigin(origin: string, host: string): boolean {
  let url: URL;
  try {
    url = new URL(origin);
  } catch {
    return false;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return false;
  return url.host === host.toLowerCase() || isLoopbackName(parseHostName(url.host));
}

function isLoopbackName(name: string): boolean {
  return name === "localhost" || name === "::1" || /^127(?:\.\d{1,3}){3}$/.test(name);
}
