/**
 * The safe edge: turns Node's request head into ours, or refuses it. Node's parser already answers the grossest
 * smuggling attempts; this refuses what it lets through and what two readers could understand differently
 * (RFC 9112 section 11). One pass over the header lines, because it runs for every request.
 */
import type { IncomingMessage } from "node:http";
import { GatewayError } from "../core/errors.ts";
import { HeaderList } from "../lib/headers.ts";

/** More lines than this are refused; fewer are never silently dropped (16 KiB bound their size). */
const MAX_HEADER_LINES = 100;
const MAX_TARGET_CHARS = 8 * 1024;

/** Headers of which a second line would let two readers choose differently. */
const SINGLETONS = new Set([
  "host",
  "authorization",
  "proxy-authorization",
  "content-type",
  "content-length",
  "transfer-encoding",
  "origin",
  "expect",
  "upgrade",
  "mcp-session-id",
  "mcp-protocol-version",
  "mcp-method",
  "mcp-name",
  "last-event-id",
  "x-request-id",
  "x-api-key",
]);

/** Names that we or a backend decide by; with underscores some servers read them as the same header (CVE-2025-64484). */
const OURS =
  /^(?:x-forwarded-|x-real-ip$|x-request-id$|x-ratelimit-|x-gateway-|x-api-key$|mcp-|forwarded$|host$|authorization$|proxy-|content-|transfer-encoding$|origin$|cookie$|connection$)/;

const HOST = /^(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;

export interface Head {
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly query: string;
  readonly version: "1.0" | "1.1";
  readonly headers: HeaderList;
  readonly hasBody: boolean;
  readonly contentLength: number | undefined;
}

/** Throws a GatewayError; after one the connection must be closed, because where the body ends is in doubt. */
export function readHead(req: IncomingMessage, peerIsTrusted: boolean): Head {
  const version = readVersion(req);
  const method = req.method as string;
  if (method === "TRACE" || method === "CONNECT")
    throw new GatewayError("method_not_allowed", {
      headers: { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" },
    });

  const raw = req.rawHeaders;
  if (raw.length > MAX_HEADER_LINES * 2) throw new GatewayError("too_many_headers");
  const pairs: string[] = [];
  let host: string | undefined;
  let contentLength: number | undefined;
  let chunked = false;
  let seen = "";
  for (let i = 0; i < raw.length; i += 2) {
    const name = (raw[i] as string).toLowerCase();
    const value = raw[i + 1] as string;
    if (SINGLETONS.has(name)) {
      // A short string of the few singletons present is cheaper to search than a set is to build.
      if (seen.includes(`,${name},`)) throw refuse(`more than one ${name} header`);
      seen += `,${name},`;
      if (name === "host") host = value;
      else if (name === "content-length") contentLength = Number(value);
      else if (name === "transfer-encoding") {
        if (version === "1.0" || value.toLowerCase() !== "chunked")
          throw refuse("transfer-encoding other than chunked");
        chunked = true;
      }
    } else if (name.includes("_") && OURS.test(name.replaceAll("_", "-"))) {
      throw refuse(`the header ${name} could be taken for ${name.replaceAll("_", "-")}`);
    }
    // What a client says about where it comes from counts only from a proxy that the operator trusts.
    if (!peerIsTrusted && (name.startsWith("x-forwarded-") || name === "forwarded")) continue;
    pairs.push(name, value);
  }

  const target = readTarget(req.url as string, method, host);
  return {
    method,
    host: target.host,
    path: target.path,
    query: target.query,
    version,
    headers: new HeaderList(pairs),
    hasBody: chunked || (contentLength !== undefined && contentLength > 0),
    contentLength,
  };
}

function readVersion(req: IncomingMessage): "1.0" | "1.1" {
  if (req.httpVersion === "1.1" || req.httpVersion === "1.0") return req.httpVersion;
  throw new GatewayError("http_version");
}

function readTarget(
  url: string,
  method: string,
  hostHeader: string | undefined,
): { host: string; path: string; query: string } {
  if (url.length > MAX_TARGET_CHARS) throw refuse("the request target is longer than 8 KiB");
  let host = hostHeader ?? "";
  let target = url;
  if (host !== "" && !HOST.test(host)) throw refuse("the Host header is not a host name");
  if (target.charCodeAt(0) !== 47 /* / */) {
    if (target === "*" && method === "OPTIONS") return { host, path: "*", query: "" };
    const absolute = /^https?:\/\/([^/?#]*)(.*)$/i.exec(target);
    if (!absolute) throw refuse("the request target is neither a path nor an http URL");
    // RFC 9112 section 3.2.2 lets the target win; we refuse a disagreement instead of choosing.
    if (hostHeader !== undefined && (absolute[1] as string).toLowerCase() !== host.toLowerCase())
      throw refuse("the request target and the Host header disagree");
    host = absolute[1] as string;
    if (!HOST.test(host)) throw refuse("the request target has no valid host");
    target = (absolute[2] as string).startsWith("/") ? (absolute[2] as string) : `/${absolute[2]}`;
  }
  const question = target.indexOf("?");
  const path = question < 0 ? target : target.slice(0, question);
  const query = question < 0 ? "" : target.slice(question + 1);
  if (path.includes("#") || query.includes("#")) throw refuse("a fragment in the request target");
  checkPath(path);
  return { host, path, query };
}

const SUSPICIOUS = /%|\.\.|\\|\/\.(?:\/|$)/;
const DOT_SEGMENT = /(?:^|\/)(?:\.|%2e){1,2}(?=\/|$)/i;

function checkPath(path: string): void {
  if (!SUSPICIOUS.test(path)) return;
  if (path.includes("\\")) throw refuse("a backslash in the path");
  if (path.includes("%00")) throw refuse("a NUL character in the path");
  if (DOT_SEGMENT.test(path)) throw refuse("a dot segment in the path");
  if (/%(?![0-9A-Fa-f]{2})/.test(path)) throw refuse("an incomplete percent encoding in the path");
}

/** An encoded separator lets the backend see other segments than the route that was matched and authorised. */
export function hasEncodedSeparator(path: string): boolean {
  return path.includes("%") && /%(?:2f|5c)/i.test(path);
}

const UNRESERVED = /%(?:2d|2e|5f|7e|3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])/gi;

/**
 * The path as routes see it: needlessly encoded characters decoded and slashes merged, so that `//admin` and
 * `/%61dmin` meet the policies of `/admin`. What is forwarded stays as it was sent.
 */
export function pathForMatching(path: string): string {
  if (!path.includes("%") && !path.includes("//")) return path;
  return path
    .replace(UNRESERVED, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)))
    .replace(/\/{2,}/g, "/");
}

function refuse(reason: string): GatewayError {
  return new GatewayError("bad_request", { message: `bad request: ${reason}` });
}
