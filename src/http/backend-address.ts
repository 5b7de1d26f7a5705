/**
 * Parses the address of a plain HTTP backend, which is `host:port`, an `http://` or `https://` URL without a path, or
 * `unix:/path/to/socket`.
 */

import { hostToConnect } from "./host.ts";
import type { HttpAddress } from "./http-client.ts";

export function boundAddress(address: string | undefined, port: number): string {
  const host = address ?? "0.0.0.0";
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

export type ParsedAddress = { ok: true; target: HttpAddress; display: string } | { ok: false; error: string };

const EXPECTED = "expected host:port, an http:// or https:// URL without a path, or unix:/path";

export function isHostAndPort(text: string): boolean {
  return /^(?:\[[^\]]+\]|[^:/[\]]+):\d+$/.test(text);
}

export function parseAddress(text: string): ParsedAddress {
  if (text.startsWith("unix:")) {
    const socketPath = text.slice("unix:".length);
    if (!socketPath.startsWith("/")) return { ok: false, error: "a unix socket needs an absolute path: unix:/path" };
    return { ok: true, target: { protocol: "http", host: "localhost", port: 80, socketPath }, display: text };
  }
  const hasScheme = /^https?:\/\//.test(text);
  if (!hasScheme && !isHostAndPort(text)) return { ok: false, error: EXPECTED };
  let url: URL;
  try {
    url = new URL(hasScheme ? text : `http://${text}`);
  } catch {
    return { ok: false, error: EXPECTED };
  }
  if ((url.pathname !== "/" && url.pathname !== "") || url.search !== "" || url.hash !== "" || url.username !== "") {
    return { ok: false, error: `${EXPECTED}; use urlRewrite to change the path` };
  }
  const protocol = url.protocol === "https:" ? "https" : "http";
  const host = hostToConnect(url);
  const port = url.port === "" ? (protocol === "https" ? 443 : 80) : Number(url.port);
  if (host === "" || port < 1) return { ok: false, error: EXPECTED };
  return { ok: true, target: { protocol, host, port }, display: `${url.hostname}:${port}` };
}
