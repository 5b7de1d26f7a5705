/**
 * Validates and lowercases header names. Common names are looked up in a table.
 */

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const PLAIN = /^[a-z0-9-]+$/;

const COMMON =
  "accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials access-control-allow-headers " +
  "access-control-allow-methods access-control-allow-origin access-control-expose-headers access-control-max-age " +
  "access-control-request-headers access-control-request-method age allow alt-svc authorization baggage cache-control cf-ray connection " +
  "content-disposition content-encoding content-language content-length content-location content-range content-security-policy " +
  "content-type cookie date etag expect expires forwarded from host if-match if-modified-since if-none-match if-range " +
  "if-unmodified-since keep-alive last-event-id last-modified link location mcp-method mcp-name mcp-protocol-version mcp-session-id " +
  "openai-organization openai-processing-ms openai-version origin pragma priority proxy-authorization proxy-connection range referer " +
  "referrer-policy retry-after sec-fetch-dest sec-fetch-mode sec-fetch-site server server-timing set-cookie " +
  "strict-transport-security te traceparent tracestate trailer transfer-encoding upgrade upgrade-insecure-requests user-agent vary via " +
  "www-authenticate x-api-key x-budget-limit x-budget-name x-budget-remaining x-budget-reset x-budget-unit x-content-type-options " +
  "x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-frame-options " +
  "x-gateway-error x-powered-by x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-real-ip x-request-id x-requested-with";

/** Maps common names in lowercase and in the spelling of `Content-Type` to lowercase. */
const known = new Map(
  COMMON.split(" ").flatMap((name) => [
    [name, name],
    [name.replace(/(^|-)[a-z]/g, (letter) => letter.toUpperCase()), name],
  ]),
);

/** Returns the name in lowercase, or undefined if it is not a valid header name. */
export function lowerHeaderName(text: string): string | undefined {
  return known.get(text) ?? (TOKEN.test(text) ? text.toLowerCase() : undefined);
}

export function isHeaderName(name: string): boolean {
  return known.has(name) || TOKEN.test(name);
}

/** Returns whether a lowercase name contains only letters, digits, and `-`. */
export function hasPlainSpelling(lowerName: string): boolean {
  return known.get(lowerName) === lowerName || PLAIN.test(lowerName);
}

export function isCommonHeaderName(name: string): boolean {
  return known.has(name);
}
