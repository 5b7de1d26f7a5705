/**
 * Lists the header names with a special meaning for the gateway, and compares names. Some servers, such as CGI servers,
 * treat `x-user`, `X_User`, and `x.user` as one header.
 */
import { hasPlainSpelling } from "../base/header-names.ts";

/** A proxy does not forward these headers (RFC 9110 section 7.6.1, RFC 9113 section 8.2.2). */
export const HOP_BY_HOP_HEADERS: ReadonlySet<string> = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** These headers frame the message or belong to its connection. */
export const MESSAGE_HEADERS: ReadonlySet<string> = new Set([...HOP_BY_HOP_HEADERS, "content-length"]);

/** Proxies report the client's address and the URL that it used in these headers. */
export const FORWARDING_HEADERS: ReadonlySet<string> = new Set([
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-proto",
  "x-real-ip",
]);

/** A forward proxy does not send these headers to the servers that its clients name. */
export const PROXY_REQUEST_HEADERS: ReadonlySet<string> = new Set([...FORWARDING_HEADERS, "proxy-authorization"]);

/** Some servers use these headers in place of the request method. */
export const METHOD_OVERRIDE_HEADERS: ReadonlySet<string> = new Set([
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-method",
]);

/** Some servers use these headers in place of the request method or path. */
export const OVERRIDE_HEADERS: ReadonlySet<string> = new Set([
  ...METHOD_OVERRIDE_HEADERS,
  "x-original-uri",
  "x-original-url",
  "x-rewrite-url",
]);

/**
 * A client cannot declare these headers hop-by-hop by naming them in `connection`, because they frame or describe the
 * message, identify the client, or are set by the gateway (CVE-2025-48865).
 */
export const END_TO_END_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "content-length",
  "content-type",
  "cookie",
  "host",
  "traceparent",
  "tracestate",
  "transfer-encoding",
  "upgrade",
  ...FORWARDING_HEADERS,
]);

/** LLM clients send their key in these headers, and AWS clients their signature. */
export const PROVIDER_CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "x-amz-date",
  "x-amz-security-token",
  "x-amz-content-sha256",
]);

const RESERVED =
  /^(?:x-forwarded-|x-real-ip$|x-request-id$|x-ratelimit-|x-gateway-|x-api-key$|mcp-|forwarded$|host$|authorization$|proxy-|content-|transfer-encoding$|origin$|cookie$|connection$)/;

/** An external service must not change these headers. */
const GATEWAY_HEADERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  ...FORWARDING_HEADERS,
  "content-encoding",
  "host",
  "x-request-id",
]);

const HYPHEN = 0x2d;

/** Maps character codes to lowercase letters, digits, and `-` for all other characters. */
const FOLDED = Uint8Array.from({ length: 128 }, (_, code) => {
  const letter = String.fromCharCode(code).toLowerCase();
  return /[a-z0-9]/.test(letter) ? letter.charCodeAt(0) : HYPHEN;
});

/** Returns whether a server may treat the two names as the same header. */
export function isSameHeader(a: string, b: string): boolean {
  return a === b || (a.length === b.length && isSameFolded(a, b));
}

/** A separate function keeps `isSameHeader` small enough to be inlined. */
function isSameFolded(left: string, right: string): boolean {
  for (let i = 0; i < left.length; i++) {
    const a = left.charCodeAt(i);
    const b = right.charCodeAt(i);
    if (a !== b && (FOLDED[a] ?? a) !== (FOLDED[b] ?? b)) return false;
  }
  return true;
}

export function foldHeaderName(name: string): string {
  return hasPlainSpelling(name) ? name : name.toLowerCase().replace(/[^a-z0-9]/g, "-");
}

/** `names` must contain folded names. */
export function includesHeader(names: ReadonlySet<string>, name: string): boolean {
  return names.has(name) || (!hasPlainSpelling(name) && names.has(foldHeaderName(name)));
}

/**
 * Returns whether the name is another spelling of a header that the gateway or a backend uses for decisions
 * (CVE-2025-64484).
 */
export function imitatesReservedHeader(name: string): boolean {
  return !hasPlainSpelling(name) && RESERVED.test(foldHeaderName(name));
}

export function canServiceChange(name: string): boolean {
  return !includesHeader(GATEWAY_HEADERS, name) && !foldHeaderName(name).startsWith("x-gateway-");
}
