/**
 * Implements the OAuth client of the gateway with dynamic registration (RFC 7591), the authorization code flow with
 * PKCE (RFC 7636) and a resource (RFC 8707), refresh, revocation (RFC 7009), metadata discovery, and token exchange
 * (RFC 8693).
 */

import { isIP } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { type Fetch, FetchError, type FetchResponse } from "../../http/fetch.ts";
import { hostOf } from "../../http/host.ts";
import { type KeptTokens, keptTokens } from "../../identity/oauth/kept-tokens.ts";
import {
  accessToken,
  codeRequestUrl,
  lifetimeMs,
  requestRegistration,
  requestRevocation,
  requestToken,
} from "../../identity/oauth/oauth-requests.ts";
import type { Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import type { ExchangeConfig, OauthConfig } from "../server-side/target-config.ts";

const METADATA = peerInput("mcp-server/login-metadata");
const TOKEN = peerInput("mcp-server/login-token");
const CHALLENGE = peerInput("mcp-server/challenge");

const TOKEN_MS = 15_000;
/** Applies if the server sends no `expires_in`. */
const DEFAULT_LIFETIME_MS = 3_600_000;

export interface OauthClient {
  readonly clientId: string;
  readonly clientSecret?: string | undefined;
}

export interface Tokens {
  readonly accessToken: string;
  readonly refreshToken?: string | undefined;
  readonly expiresAtMs: number;
  readonly scope?: string | undefined;
}

/** Reports that the authorization server rejected the grant permanently. */
export class GrantRefused extends Error {}

export async function registerClient(server: OauthServer, redirectUri: string, fetch: Fetch): Promise<OauthClient> {
  if (server.registrationEndpoint === undefined) throw new Error("has no registration endpoint: set `clientId`");
  const { status, members } = await requestRegistration(endpoint(server.registrationEndpoint, fetch), {
    client_name: "MCP gateway",
    redirect_uris: [redirectUri],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  });
  const { client_id: clientId, client_secret: clientSecret } = members;
  if (status > 299 || typeof clientId !== "string")
    throw new Error(`refused the registration: ${refusal(status, members)}`);
  return { clientId, clientSecret: typeof clientSecret === "string" ? clientSecret : undefined };
}

export interface AuthorizationRequest {
  readonly client: OauthClient;
  readonly redirectUri: string;
  readonly state: string;
  readonly verifier: string;
  readonly scopes: readonly string[];
}

export function authorizationUrl(server: OauthServer, request: AuthorizationRequest): string {
  return codeRequestUrl(
    server.authorizationEndpoint,
    {
      response_type: "code",
      client_id: request.client.clientId,
      redirect_uri: request.redirectUri,
      state: request.state,
      resource: server.resource,
      ...(request.scopes.length === 0 ? {} : { scope: request.scopes.join(" ") }),
    },
    request.verifier,
  );
}

/** The endpoint of a server to which grants and tokens are sent. */
type TokenServer = Pick<OauthServer, "tokenEndpoint" | "resource">;

export function exchangeCode(
  server: TokenServer,
  client: OauthClient,
  grant: { readonly code: string; readonly verifier: string; readonly redirectUri: string },
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  const form = {
    grant_type: "authorization_code",
    code: grant.code,
    redirect_uri: grant.redirectUri,
    code_verifier: grant.verifier,
  };
  return tokens(server, client, form, fetch, nowMs);
}

export async function refreshTokens(
  server: TokenServer,
  client: OauthClient,
  refreshToken: string,
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  const fresh = await tokens(
    server,
    client,
    { grant_type: "refresh_token", refresh_token: refreshToken },
    fetch,
    nowMs,
  );
  // Without a new refresh token, the old one stays valid (RFC 6749 section 6).
  return { ...fresh, refreshToken: fresh.refreshToken ?? refreshToken };
}

/** Resolves with false if the server has no revocation endpoint or rejects the request. */
export async function revokeTokens(
  server: Pick<OauthServer, "revocationEndpoint">,
  client: OauthClient,
  held: Tokens,
  fetch: Fetch,
): Promise<boolean> {
  if (server.revocationEndpoint === undefined) return false;
  const token = held.refreshToken ?? held.accessToken;
  return (await requestRevocation(endpoint(server.revocationEndpoint, fetch), client, token)).status < 300;
}

function tokens(
  server: TokenServer,
  client: OauthClient,
  grant: Readonly<Record<string, string>>,
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  return requestTokens(server.tokenEndpoint, client, { ...grant, resource: server.resource }, fetch, nowMs);
}

/**
 * Rejects with `GrantRefused` if the server rejects the grant permanently, and with another Error if the request
 * failed.
 */
export async function requestTokens(
  url: string,
  client: OauthClient,
  form: Readonly<Record<string, string>>,
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  const { status, members } = await requestToken(endpoint(url, fetch), client, Object.entries(form));
  const token = accessToken(members);
  if (status > 299 || token === undefined) {
    const isFinal = status >= 400 && status < 500 && status !== 429;
    throw new (isFinal ? GrantRefused : Error)(`refused the token request: ${refusal(status, members)}`);
  }
  const { refresh_token: refreshToken, scope, token_type: type } = members;
  if (typeof type === "string" && type.toLowerCase() !== "bearer")
    throw new Error(`gave a token of type ${type.slice(0, 40)}`);
  return {
    accessToken: token,
    refreshToken: typeof refreshToken === "string" ? refreshToken : undefined,
    expiresAtMs: nowMs + (lifetimeMs(members) ?? DEFAULT_LIFETIME_MS),
    scope: typeof scope === "string" ? scope : undefined,
  };
}

function endpoint(url: string, fetch: Fetch) {
  return { url, fetch, timeoutMs: TOKEN_MS, input: TOKEN };
}

/** Other members of the body may echo the request with its secrets, so they are not shown. */
function refusal(status: number, { error, error_description: description }: Members): string {
  const detail = [error, description].filter((one) => typeof one === "string").join(": ");
  return `status ${status}${detail === "" ? "" : `, ${detail.slice(0, 200)}`}`;
}

const METADATA_MS = 10_000;

export interface OauthServer {
  readonly issuer: string;
  readonly authorizationEndpoint: string;
  readonly tokenEndpoint: string;
  readonly registrationEndpoint: string | undefined;
  readonly revocationEndpoint: string | undefined;
  /** The audience of requested tokens (RFC 8707). */
  readonly resource: string;
  readonly scopes: readonly string[];
  /** True if redirects carry the parameter `iss` (RFC 9207). */
  readonly sendsIssuer: boolean;
}

type Document = Readonly<Record<string, unknown>>;

const PUBLIC = EgressGuard.for("server");
const PRIVATE = EgressGuard.for("privateServer");

/**
 * Prevents a server from directing requests to local and private addresses through URLs on other origins, also by names
 * that resolve to such addresses. A configured issuer is trusted.
 */
export function confinedFetch(serverUrl: string, fetch: Fetch, issuer?: string): Fetch {
  if (isLocal(new URL(serverUrl))) return fetch;
  const trusted = [serverUrl, ...(issuer === undefined ? [] : [issuer])].map((url) => new URL(url).origin);
  return (request) => {
    const origin = originOf(request.url);
    if (origin === undefined || trusted.includes(origin)) return fetch(request);
    return fetch({ ...request, egress: PUBLIC }).catch((error: unknown) => {
      throw isRefused(error) ? new Error(`names an address of this network (${origin}): set \`issuer\``) : error;
    });
  };
}

/**
 * Confines a server without a configured issuer as long as it uses public addresses. It counts as private if every
 * connection to it used a private address, so a name that changes its address gains nothing.
 */
export function learningFetch(serverUrl: string, fetch: Fetch): Fetch {
  let network: EgressGuard | undefined;
  const confined = confinedFetch(serverUrl, fetch);
  const own = new URL(serverUrl).origin;
  if (isLocal(new URL(serverUrl))) return fetch;
  return async (request) => {
    if (originOf(request.url) !== own) return network === PRIVATE ? fetch(request) : confined(request);
    try {
      const answer = await fetch({ ...request, egress: PUBLIC });
      network = PUBLIC;
      return answer;
    } catch (error) {
      if (!isRefused(error) || network === PUBLIC) throw error;
      network = PRIVATE;
      return fetch({ ...request, egress: network });
    }
  };
}

function originOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).origin : undefined;
}

function isRefused(error: unknown): boolean {
  return error instanceof FetchError && error.reason === "refused";
}

type ConfiguredServer = Pick<OauthConfig, "issuer" | "resource">;

export async function discoverOauthServer(
  serverUrl: string,
  configured: ConfiguredServer,
  fetch: Fetch,
): Promise<OauthServer> {
  return (await discoverLogin(serverUrl, configured, fetch)).server;
}

export interface LoginDocuments {
  readonly server: OauthServer;
  /** The protected resource metadata (RFC 9728), if the server has any. */
  readonly resourceMetadata: Document | undefined;
  /** The metadata of the authorization server (RFC 8414 or OpenID Connect). */
  readonly serverMetadata: Document;
}

export async function discoverLogin(
  serverUrl: string,
  { issuer, resource: configuredResource }: ConfiguredServer,
  fetch: Fetch,
): Promise<LoginDocuments> {
  const mayLocal = isLocal(new URL(serverUrl));
  const mayHttp = new URL(serverUrl).protocol === "http:";
  const checked = (url: string, what: string): string => checkedUrl(url, { mayHttp, mayLocal }, what);
  const resource = await resourceMetadata(serverUrl, fetch, checked);
  const named = Array.isArray(resource?.authorization_servers) ? resource.authorization_servers[0] : undefined;
  // A configured issuer is trusted and may be local.
  const chosen = issuer ?? checked(typeof named === "string" ? named : new URL(serverUrl).origin, "its issuer");
  const metadata = await serverMetadata(chosen, fetch);
  const methods = metadata.code_challenge_methods_supported;
  if (Array.isArray(methods) && !methods.includes("S256")) throw new Error("has no PKCE (S256)");
  const endpoint = (name: string): string | undefined => {
    const value = metadata[name];
    if (typeof value !== "string") return undefined;
    // Endpoints on the origin of a configured issuer are also trusted.
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
    resource: configuredResource ?? namedResource(resource?.resource, serverUrl, mayLocal),
    scopes: texts(resource?.scopes_supported),
    sendsIssuer: metadata.authorization_response_iss_parameter_supported === true,
  };
  return { server, resourceMetadata: resource, serverMetadata: metadata };
}

/**
 * Prevents a server from requesting tokens for another server (RFC 9728 section 3.3). A resource may have a shorter path,
 * and a local server may have another public address.
 */
function namedResource(named: unknown, serverUrl: string, mayLocal: boolean): string {
  if (typeof named !== "string" || named === serverUrl) return serverUrl;
  const [own, other] = [new URL(serverUrl), URL.canParse(named) ? new URL(named) : undefined];
  const path = other?.pathname.replace(/\/+$/, "") ?? "";
  const contains = other?.origin === own.origin && `${own.pathname}/`.startsWith(`${path}/`);
  if (!contains && !mayLocal) throw new Error(`names another resource (${named.slice(0, 200)}): set \`resource\``);
  return named;
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
    // The challenge must not direct the gateway to another origin.
    if (place === undefined || new URL(checked(place, "its metadata")).origin !== origin) continue;
    const found = await document(place, fetch);
    if (found !== undefined) return found;
  }
  return undefined;
}

async function challenged(serverUrl: string, fetch: Fetch): Promise<string | undefined> {
  const answer = await fetch({
    url: serverUrl,
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    timeoutMs: METADATA_MS,
    input: METADATA,
  });
  const challenge = answer.headers.get("www-authenticate") ?? "";
  return challenge.length > CHALLENGE.maxBytes ? undefined : /resource_metadata="([^"]+)"/.exec(challenge)?.[1];
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
    // Prevents mix-up attacks (RFC 8414 section 3.3).
    if (typeof found.issuer === "string" && !isSameIssuer(found.issuer, issuer))
      throw new Error(`names another issuer (${found.issuer.slice(0, 200)})`);
    return found;
  }
  throw new Error(`has no authorization server metadata at ${origin}`);
}

/**
 * Returns what an endpoint must keep. An issuer may move endpoints within its own origin; those that it names elsewhere
 * may belong to other tenants of the same origin, so that their whole address counts.
 */
export function endpointPlace(issuer: string, endpoint: string): string {
  const { origin, href } = new URL(endpoint);
  return origin === new URL(issuer).origin ? origin : href;
}

export function isSameIssuer(one: string, other: string): boolean {
  return one.replace(/\/$/, "") === other.replace(/\/$/, "");
}

async function document(url: string, fetch: Fetch): Promise<Document | undefined> {
  let answer: FetchResponse;
  try {
    answer = await fetch({
      url,
      headers: { accept: "application/json" },
      timeoutMs: METADATA_MS,
      input: METADATA,
    });
  } catch (error) {
    throw new Error(
      `cannot be reached at ${new URL(url).origin}: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
  if (answer.status !== 200) return undefined;
  return readMembers(METADATA, answer.body);
}

/** Throws an Error if the URL is malformed, contains credentials, or is not allowed by `may`. */
function checkedUrl(url: string, may: { mayHttp: boolean; mayLocal: boolean }, what: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isAllowed = parsed?.protocol === "https:" || (parsed?.protocol === "http:" && may.mayHttp);
  if (parsed === undefined || !isAllowed || parsed.username !== "" || parsed.password !== "")
    throw new Error(`names no https URL as ${what}`);
  if (!may.mayLocal && isLocal(parsed)) throw new Error(`names an address of this network as ${what}`);
  return url;
}

function isLocal(url: URL): boolean {
  const host: string = hostOf(url.host);
  if (isIP(host) !== 0) return !PUBLIC.permits(host, host);
  return host === "" || host === "localhost" || /\.(?:localhost|internal|local)$/.test(host);
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}

/** Exchanges tokens of callers (RFC 8693). */
export function tokenExchange(config: ExchangeConfig, fetch: Fetch, clock: Clock): KeptTokens {
  const { tokenUrl, clientId, clientSecret, audience, resource, scopes, subjectTokenType } = config;
  const form = {
    grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
    subject_token_type: subjectTokenType,
    requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
    ...(audience === undefined ? {} : { audience }),
    ...(resource === undefined ? {} : { resource }),
    ...(scopes === undefined ? {} : { scope: scopes.join(" ") }),
  };
  return keptTokens(false, clock, async (subject) => {
    const grant = { ...form, subject_token: subject };
    const tokens = await requestTokens(tokenUrl, { clientId, clientSecret }, grant, fetch, clock.now());
    return { token: tokens.accessToken, untilMs: tokens.expiresAtMs };
  });
}
