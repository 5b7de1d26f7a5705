/**
 * A client's registration (RFC 7591) as far as the gateway vouches for it: a small JSON object whose redirect URIs
 * cannot carry a code to a script, a file or an unencrypted host. What it means is the provider's business.
 */
import type { ClientRegistration } from "../providers/provider.ts";
import { OAuthRequestError } from "../providers/provider-error.ts";

const MAX_DEPTH = 16;
const MAX_REDIRECT_URIS = 50;

/** Schemes that run or read something instead of reaching a client's own application. */
const DANGEROUS_SCHEMES = new Set([
  "about:",
  "blob:",
  "data:",
  "file:",
  "filesystem:",
  "ftp:",
  "javascript:",
  "vbscript:",
  "view-source:",
  "ws:",
  "wss:",
]);
const LOOPBACK = /^(?:localhost|(?:[^.]+\.)+localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

export function parseRegistration(body: Buffer): ClientRegistration & Readonly<Record<string, unknown>> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString("utf8"));
  } catch {
    throw new OAuthRequestError("invalid_client_metadata", "the body is not JSON");
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new OAuthRequestError("invalid_client_metadata", "the body is not a JSON object");
  }
  if (!isShallow(parsed, MAX_DEPTH))
    throw new OAuthRequestError("invalid_client_metadata", "the body is nested too deeply");
  const registration = parsed as ClientRegistration & Record<string, unknown>;
  checkRedirectUris(registration.redirect_uris);
  return registration;
}

function checkRedirectUris(uris: unknown): void {
  if (uris === undefined) return;
  const isList =
    Array.isArray(uris) && uris.length <= MAX_REDIRECT_URIS && uris.every((uri) => typeof uri === "string");
  if (!isList) throw new OAuthRequestError("invalid_redirect_uri", "redirect_uris is not a list of URLs");
  for (const uri of uris as string[]) {
    const problem = redirectUriProblem(uri);
    if (problem) throw new OAuthRequestError("invalid_redirect_uri", `a redirect URI ${problem}`);
  }
}

/** https, http on loopback, or an application's own scheme (RFC 8252); neither fragment nor wildcard. */
function redirectUriProblem(uri: string): string | undefined {
  let url: URL;
  try {
    url = new URL(uri);
  } catch {
    return "is not an absolute URL";
  }
  if (uri.includes("#")) return "has a fragment";
  if (uri.includes("*")) return "has a wildcard";
  if (url.username !== "" || url.password !== "") return "has credentials";
  if (DANGEROUS_SCHEMES.has(url.protocol)) return `has the scheme ${url.protocol}`;
  if (url.protocol === "http:" && !LOOPBACK.test(url.hostname)) return "uses http on a host that is not loopback";
  return undefined;
}

function isShallow(value: object, depth: number): boolean {
  if (depth === 0) return false;
  return Object.values(value).every(
    (child) => typeof child !== "object" || child === null || isShallow(child, depth - 1),
  );
}
