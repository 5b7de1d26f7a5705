/**
 * The gateway as a client of an authorization server: registration (RFC 7591), the authorization code flow with PKCE
 * (RFC 7636) and a resource (RFC 8707), refresh and revocation (RFC 7009).
 */

import { createHash, randomBytes } from "node:crypto";
import type { Fetch } from "../../http/fetch.ts";
import { parseBoundedObject } from "../../json/bounded-json.ts";
import type { OauthServer } from "./oauth-server.ts";

const TOKEN_MS = 15_000;
const MAX_TOKEN_BYTES = 256 * 1024;
/** Where the server does not say: most tokens live for an hour. */
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

/** The grant is refused for good: the user must log in again. */
export class GrantRefused extends Error {}

export async function registerClient(server: OauthServer, redirectUri: string, fetch: Fetch): Promise<OauthClient> {
  if (server.registrationEndpoint === undefined) throw new Error("has no registration endpoint: set `clientId`");
  const body = {
    client_name: "MCP gateway",
    redirect_uris: [redirectUri],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  const answer = await post(server.registrationEndpoint, JSON.stringify(body), "application/json", fetch);
  const { client_id: clientId, client_secret: clientSecret } = answer.value;
  if (answer.status > 299 || typeof clientId !== "string")
    throw new Error(`refused the registration: ${answer.reason}`);
  return { clientId, clientSecret: typeof clientSecret === "string" ? clientSecret : undefined };
}

export function createVerifier(): string {
  return randomBytes(32).toString("base64url");
}

export interface AuthorizationRequest {
  readonly client: OauthClient;
  readonly redirectUri: string;
  readonly state: string;
  readonly verifier: string;
  readonly scopes: readonly string[];
}

export function authorizationUrl(server: OauthServer, request: AuthorizationRequest): string {
  const url = new URL(server.authorizationEndpoint);
  const challenge = createHash("sha256").update(request.verifier).digest("base64url");
  const parameters = {
    response_type: "code",
    client_id: request.client.clientId,
    redirect_uri: request.redirectUri,
    state: request.state,
    code_challenge: challenge,
    code_challenge_method: "S256",
    resource: server.resource,
    ...(request.scopes.length === 0 ? {} : { scope: request.scopes.join(" ") }),
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return url.href;
}

export function exchangeCode(
  server: OauthServer,
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
  server: OauthServer,
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
  // A server that does not rotate them leaves the old one valid (RFC 6749 section 6).
  return { ...fresh, refreshToken: fresh.refreshToken ?? refreshToken };
}

/** Best effort: a token that the server does not take back ends by itself. */
export async function revokeTokens(
  server: OauthServer,
  client: OauthClient,
  held: Tokens,
  fetch: Fetch,
): Promise<boolean> {
  if (server.revocationEndpoint === undefined) return false;
  const form = { token: held.refreshToken ?? held.accessToken };
  const answer = await post(server.revocationEndpoint, encoded(client, form), FORM, fetch, basic(client));
  return answer.status < 300;
}

const FORM = "application/x-www-form-urlencoded";

function tokens(
  server: OauthServer,
  client: OauthClient,
  grant: Readonly<Record<string, string>>,
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  return requestTokens(server.tokenEndpoint, client, { ...grant, resource: server.resource }, fetch, nowMs);
}

/** Throws GrantRefused where the server says no, another Error where it could not be asked. */
export async function requestTokens(
  endpoint: string,
  client: OauthClient,
  form: Readonly<Record<string, string>>,
  fetch: Fetch,
  nowMs: number,
): Promise<Tokens> {
  const answer = await post(endpoint, encoded(client, form), FORM, fetch, basic(client));
  const {
    access_token: accessToken,
    refresh_token: refreshToken,
    expires_in: seconds,
    scope,
    token_type: type,
  } = answer.value;
  if (answer.status > 299 || typeof accessToken !== "string" || !/^[\x21-\x7e]+$/.test(accessToken)) {
    const isFinal = answer.status >= 400 && answer.status < 500 && answer.status !== 429;
    throw new (isFinal ? GrantRefused : Error)(`refused the token request: ${answer.reason}`);
  }
  if (typeof type === "string" && type.toLowerCase() !== "bearer")
    throw new Error(`gave a token of type ${type.slice(0, 40)}`);
  return {
    accessToken,
    refreshToken: typeof refreshToken === "string" ? refreshToken : undefined,
    expiresAtMs: nowMs + (typeof seconds === "number" && seconds > 0 ? seconds * 1000 : DEFAULT_LIFETIME_MS),
    scope: typeof scope === "string" ? scope : undefined,
  };
}

function encoded(client: OauthClient, form: Readonly<Record<string, string>>): string {
  // A client with a secret shows itself in the header, and is named there.
  return new URLSearchParams(
    client.clientSecret === undefined ? { ...form, client_id: client.clientId } : form,
  ).toString();
}

function basic({ clientId, clientSecret }: OauthClient): Record<string, string> {
  if (clientSecret === undefined) return {};
  const pair = `${encodeURIComponent(clientId)}:${encodeURIComponent(clientSecret)}`;
  return { authorization: `Basic ${Buffer.from(pair).toString("base64")}` };
}

async function post(url: string, body: string, type: string, fetch: Fetch, headers: Record<string, string> = {}) {
  const answer = await fetch({
    url,
    method: "POST",
    headers: { "content-type": type, accept: "application/json", ...headers },
    body: Buffer.from(body),
    timeoutMs: TOKEN_MS,
    maxBytes: MAX_TOKEN_BYTES,
  });
  // Where there is none, the status says enough.
  const value = parseBoundedObject(answer.body) ?? {};
  // Only what the RFC lets an error say: a body may repeat what was sent.
  const said = [value.error, value.error_description].filter((one) => typeof one === "string").join(": ");
  return {
    status: answer.status,
    value,
    reason: `status ${answer.status}${said === "" ? "" : `, ${said.slice(0, 200)}`}`,
  };
}
