/**
 * Protects MCP servers against requests from web pages (DNS rebinding and cross-site requests).
 */
import { escapeControls } from "../../base/safe-text.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { isLoopbackPeer } from "../../core/source.ts";
import {
  authorityOfOrigin,
  type CanonicalHost,
  canonicalPattern,
  hostOf,
  isLoopbackHost,
  isOwnOrigin,
  matchesHost,
} from "../../http/host.ts";

/** Host names have no port. `*.example.com` matches all subdomains. */
export interface TrustedHosts {
  has(host: CanonicalHost): boolean;
}

const QUOTED_CHARS = 100;

export const ANY_HOST: TrustedHosts = { has: () => true };

export function trustedHosts(names: readonly string[]): TrustedHosts {
  const patterns = names.map(canonicalPattern);
  return { has: (host) => patterns.some((pattern) => matchesHost(pattern, host)) };
}

/** Throws `origin_denied` if the host or the origin is not allowed. */
export function guardOrigin(exchange: Exchange, trusted: TrustedHosts): void {
  const { request, source } = exchange;
  // A page that uses DNS rebinding can add forwarding headers, so forwarded requests are checked too.
  if (isLoopbackPeer(source) && !isAllowedHost(request.host, trusted)) {
    const host = hostOf(request.host);
    throw new GatewayError("origin_denied", {
      message: `the host "${escapeControls(host).slice(0, QUOTED_CHARS)}" is not allowed over a loopback address: add it to the MCP backend's "allowedHosts" or in the route's "hostnames"`,
    });
  }
  const origin = request.headers.get("origin");
  if (origin === undefined || exchange.originAllowed === true || isAllowedOrigin(origin, request.host)) return;
  throw new GatewayError("origin_denied", {
    message: `the origin "${escapeControls(origin).slice(0, QUOTED_CHARS)}" is not allowed: add it to the route's "cors.allowOrigins"`,
  });
}

function isAllowedHost(authority: string, trusted: TrustedHosts): boolean {
  const host = hostOf(authority);
  return isLoopbackHost(host) || trusted.has(host);
}

function isAllowedOrigin(origin: string, authority: string): boolean {
  const named = authorityOfOrigin(origin);
  return named !== undefined && (isLoopbackHost(named.name) || isOwnOrigin(origin, authority));
}
