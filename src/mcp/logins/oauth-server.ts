/**
 * The authorization server of a remote MCP server, found as MCP clients find it: the server's protected resource metadata
 * (RFC 9728) names it, its own metadata (RFC 8414, or OpenID Connect) has the endpoints. Redirects are not followed, and
 * nothing but https is used unless the MCP server itself is reached by http.
 */

import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import { parseBoundedObject } from "../../json/bounded-json.ts";

const METADATA_MS = 10_000;
const MAX_METADATA_BYTES = 256 * 1024;

export interface OauthServer {
  readonly issuer: string;
  readonly authorizationEndpoint: string;
  readonly tokenEndpoint: string;
  readonly registrationEndpoint: string | undefined;
  readonly revocationEndpoint: string | undefined;
  /** The audience that tokens are asked for (RFC 8707). */
  readonly resource: string;
  readonly scopes: readonly string[];
  /** `iss` is among the parameters of its redirects (RFC 9207). */
  readonly sendsIssuer: boolean;
}

type Document = Readonly<Record<string, unknown>>;

/**
 * Requests to what a server on the internet names, other than itself, do not reach this machine, whatever the name
 * resolves to.
 */
export function confinedFetch(serverUrl: string, fetch: Fetch): Fetch {
  const { origin } = new URL(serverUrl);
  if (isLocal(new URL(serverUrl))) return fetch;
  return (request) =>
    fetch(
      URL.canParse(request.url) && new URL(request.url).origin === origin ? request : { ...request, isConfined: true },
    );
}

/** Throws an Error that completes "the login of target x …". */
export async function discoverOauthServer(
  serverUrl: string,
  issuer: string | undefined,
  fetch: Fetch,
): Promise<OauthServer> {
  return (await discoverLogin(serverUrl, issuer, fetch)).server;
}

/** What a remote server and its authorization server publish about logins, and what follows from it. */
export interface LoginDocuments {
  readonly server: OauthServer;
  /** RFC 9728; undefined if it has none. */
  readonly resourceMetadata: Document | undefined;
  /** RFC 8414 or OpenID Connect. */
  readonly serverMetadata: Document;
}

/** Throws as `discoverOauthServer`. */
export async function discoverLogin(
  serverUrl: string,
  issuer: string | undefined,
  fetch: Fetch,
): Promise<LoginDocuments> {
  const mayLocal = isLocal(new URL(serverUrl));
  const mayHttp = new URL(serverUrl).protocol === "http:";
  const checked = (url: string, what: string): string => checkedUrl(url, { mayHttp, mayLocal }, what);
  const resource = await resourceMetadata(serverUrl, fetch, checked);
  const named = Array.isArray(resource?.authorization_servers) ? resource.authorization_servers[0] : undefined;
  // What the configuration names may be anywhere.
  const chosen = issuer ?? checked(typeof named === "string" ? named : new URL(serverUrl).origin, "its issuer");
  const metadata = await serverMetadata(chosen, fetch);
  const methods = metadata.code_challenge_methods_supported;
  if (Array.isArray(methods) && !methods.includes("S256")) throw new Error("has no PKCE (S256)");
  const endpoint = (name: string): string | undefined => {
    const value = metadata[name];
    if (typeof value !== "string") return undefined;
    // An authorization server that the configuration names may have its endpoints beside it.
    if (issuer !== undefined && URL.canParse(value) && new URL(value).origin === new URL(issuer).origin) return value;
    return checked(value, name);
  };
  const authorizationEndpoint = endpoint("authorization_endpoint");
  const tokenEndpoint = endpoint("token_endpoint");
  if (authorizationEndpoint === undefined || tokenEndpoint === undefined)
    throw new Error("names no authorization or token endpoint");
  const server = {
    issuer: typeof metadata.issuer === "string" ? metadata.issuer : chosen,
    authorizationEndpoint,
    tokenEndpoint,
    registrationEndpoint: endpoint("registration_endpoint"),
    revocationEndpoint: endpoint("revocation_endpoint"),
    resource: typeof resource?.resource === "string" ? resource.resource : serverUrl,
    scopes: texts(resource?.scopes_supported),
    sendsIssuer: metadata.authorization_response_iss_parameter_supported === true,
  };
  return { server, resourceMetadata: resource, serverMetadata: metadata };
}

type Check = (url: string, what: string) => string;

async function resourceMetadata(serverUrl: string, fetch: Fetch, checked: Check): Promise<Document | undefined> {
  const { origin, pathname } = new URL(serverUrl);
  const places = [
    await challenged(serverUrl, fetch),
    `${origin}/.well-known/oauth-protected-resource${pathname}`,
    `${origin}/.well-known/oauth-protected-resource`,
  ];
  for (const place of places) {
    // What the challenge names must be the server's own: others could send us anywhere.
    if (place === undefined || new URL(checked(place, "its metadata")).origin !== origin) continue;
    const found = await document(place, fetch);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The metadata's address in the challenge of a request without a token. */
async function challenged(serverUrl: string, fetch: Fetch): Promise<string | undefined> {
  const answer = await fetch({
    url: serverUrl,
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    timeoutMs: METADATA_MS,
    maxBytes: MAX_METADATA_BYTES,
  });
  return /resource_metadata="([^"]+)"/.exec(answer.headers.get("www-authenticate") ?? "")?.[1];
}

async function serverMetadata(issuer: string, fetch: Fetch): Promise<Document> {
  const { origin, pathname } = new URL(issuer);
  const path = pathname === "/" ? "" : pathname.replace(/\/$/, "");
  for (const place of [
    `${origin}/.well-known/oauth-authorization-server${path}`,
    `${origin}/.well-known/openid-configuration${path}`,
    `${origin}${path}/.well-known/openid-configuration`,
  ]) {
    const found = await document(place, fetch);
    if (found === undefined) continue;
    // A document about another issuer could mix up two servers (RFC 8414 section 3.3).
    if (typeof found.issuer === "string" && found.issuer.replace(/\/$/, "") !== issuer.replace(/\/$/, ""))
      throw new Error(`names another issuer (${found.issuer.slice(0, 200)})`);
    return found;
  }
  throw new Error(`has no authorization server metadata at ${origin}`);
}

async function document(url: string, fetch: Fetch): Promise<Document | undefined> {
  let answer: FetchResponse;
  try {
    answer = await fetch({
      url,
      headers: { accept: "application/json" },
      timeoutMs: METADATA_MS,
      maxBytes: MAX_METADATA_BYTES,
    });
  } catch (error) {
    throw new Error(
      `cannot be reached at ${new URL(url).origin}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  if (answer.status !== 200) return undefined;
  return parseBoundedObject(answer.body);
}

/** What a server on the internet names must not lead into the network that the gateway stands in. */
function checkedUrl(url: string, may: { mayHttp: boolean; mayLocal: boolean }, what: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isAllowed = parsed?.protocol === "https:" || (parsed?.protocol === "http:" && may.mayHttp);
  if (parsed === undefined || !isAllowed || parsed.username !== "" || parsed.password !== "")
    throw new Error(`names no https URL as ${what}`);
  if (!may.mayLocal && isLocal(parsed)) throw new Error(`names an address of this network as ${what}`);
  return url;
}

const LOCAL_V4 = /^(?:0|10|127|169\.254|172\.(?:1[6-9]|2\d|3[01])|192\.168|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\./;

function isLocal({ hostname }: URL): boolean {
  const host = hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
  if (host.includes(":")) return !/^[23]/.test(host);
  return host === "localhost" || /\.(?:localhost|internal|local)$/.test(host) || LOCAL_V4.test(host);
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}
