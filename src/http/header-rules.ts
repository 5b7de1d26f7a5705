/**
 * The one table of header names with a meaning for a gateway: which belong to a connection, frame a message, describe
 * where a request came from, or carry credentials; and which names a server takes for the same header.
 *
 * Servers that turn header names into variables (CGI, WSGI, PHP, lighttpd, Go's `net/http/cgi`) read `x-user`,
 * `X_User` and `x.user` as one header. So names are compared without regard to case and punctuation wherever the
 * gateway replaces, removes or reserves a header.
 */
import { hasPlainSpelling } from "../base/header-names.ts";

/** Headers of one connection, which a proxy does not forward (RFC 9110 section 7.6.1, RFC 9113 section 8.2.2). */
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

/** Headers that frame a message or belong to its connection. Only the code that writes the message sets them. */
export const MESSAGE_HEADERS: ReadonlySet<string> = new Set([...HOP_BY_HOP_HEADERS, "content-length"]);

/** Headers with which proxies report the client's address and the URL that it used. */
export const FORWARDING_HEADERS: ReadonlySet<string> = new Set([
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-proto",
  "x-real-ip",
]);

/**
 * Headers that a client cannot declare hop-by-hop by naming them in `connection`: they frame the message, identify the
 * client, or are asserted by the gateway (CVE-2025-48865).
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

/** Headers in which LLM clients send their key, and those that AWS clients sign with. */
export const PROVIDER_CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  "authorization",
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "x-amz-date",
  "x-amz-security-token",
  "x-amz-content-sha256",
]);

/** Headers that affect decisions of the gateway or a backend. */
const RESERVED =
  /^(?:x-forwarded-|x-real-ip$|x-request-id$|x-ratelimit-|x-gateway-|x-api-key$|mcp-|forwarded$|host$|authorization$|proxy-|content-|transfer-encoding$|origin$|cookie$|connection$)/;

/** Headers that an external service must not change: the gateway itself determines them. */
const GATEWAY_HEADERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  ...FORWARDING_HEADERS,
  "content-encoding",
  "host",
  "x-request-id",
]);

const HYPHEN = 0x2d;

/** By character code: letters in lower case, digits, and `-` for all punctuation. */
const FOLDED = Uint8Array.from({ length: 128 }, (_, code) => {
  const letter = String.fromCharCode(code).toLowerCase();
  return /[a-z0-9]/.test(letter) ? letter.charCodeAt(0) : HYPHEN;
});

/**
 * Whether a server may take the two names for the same header. Folding keeps the length, so most names differ at once.
 */
export function isSameHeader(one: string, other: string): boolean {
  return one === other || (one.length === other.length && areFoldedAlike(one, other));
}

/** A separate function, so that the comparison above is small enough to be inlined on the data path. */
function areFoldedAlike(one: string, other: string): boolean {
  for (let i = 0; i < one.length; i++) {
    const a = one.charCodeAt(i);
    const b = other.charCodeAt(i);
    if (a !== b && (FOLDED[a] ?? a) !== (FOLDED[b] ?? b)) return false;
  }
  return true;
}

/** Returns the spelling with lowercase letters, digits and `-` only. */
export function foldHeaderName(name: string): string {
  return hasPlainSpelling(name) ? name : name.toLowerCase().replace(/[^a-z0-9]/g, "-");
}

/** Whether `names`, which must be folded, contain the name in any spelling. */
export function includesHeader(names: ReadonlySet<string>, name: string): boolean {
  return names.has(name) || (!hasPlainSpelling(name) && names.has(foldHeaderName(name)));
}

/** Whether the name is another spelling of one that the gateway or a backend makes decisions by (CVE-2025-64484). */
export function imitatesReservedHeader(name: string): boolean {
  return !hasPlainSpelling(name) && RESERVED.test(foldHeaderName(name));
}

/** Whether an external service may set or remove the header on a request or a response. */
export function mayServiceChange(name: string): boolean {
  return !includesHeader(GATEWAY_HEADERS, name) && !foldHeaderName(name).startsWith("x-gateway-");
}
