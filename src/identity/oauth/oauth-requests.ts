/**
 * Sends the requests of all OAuth clients of the gateway: browser sign-in, logins at MCP servers, and tokens for
 * backends and clouds. Each flow passes the endpoint that it is bound to, and judges the response.
 */
import { createHash, randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { addToQuery, newForm } from "../../base/form.ts";
import { onDemand } from "../../base/on-demand.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Members } from "../../json/json.ts";
import { readMembers } from "../../json/read-json.ts";
import type { ClientCredentials, OauthEndpoint } from "./oauth-library.ts";

const TOKEN_RESPONSE = peerInput("identity-provider/token-response");

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./oauth-library.ts")>(() => require("./oauth-library.js"));

export interface OauthResponse {
  readonly status: number;
  readonly text: string;
  /** Empty if the body is not a JSON object. */
  readonly members: Members;
}

/** Contains `grant_type`. */
export type GrantParameters = readonly (readonly [name: string, value: string])[];

export async function requestToken(
  endpoint: OauthEndpoint,
  client: ClientCredentials,
  parameters: GrantParameters,
): Promise<OauthResponse> {
  const form = newForm(parameters);
  return readResponse(await library().sendGrant(endpoint, client, form));
}

export async function requestRevocation(
  endpoint: OauthEndpoint,
  client: ClientCredentials,
  token: string,
): Promise<OauthResponse> {
  return readResponse(await library().sendRevocation(endpoint, client, token));
}

export async function requestRegistration(
  endpoint: OauthEndpoint,
  metadata: Readonly<Record<string, string | readonly string[]>>,
): Promise<OauthResponse> {
  return readResponse(await library().sendRegistration(endpoint, metadata));
}

export function readResponse({ status, body }: { readonly status: number; readonly body: Buffer }): OauthResponse {
  return { status, text: body.toString("utf8"), members: readMembers(TOKEN_RESPONSE, body) ?? {} };
}

/** Creates the verifier of a login (RFC 7636). */
export function createVerifier(): string {
  return randomBytes(32).toString("base64url");
}

export function codeRequestUrl(
  authorizationEndpoint: string,
  parameters: Readonly<Record<string, string>>,
  verifier: string,
): string {
  const url = new URL(authorizationEndpoint);
  const challenge = createHash("sha256").update(verifier).digest("base64url");
  const all = { ...parameters, code_challenge: challenge, code_challenge_method: "S256" };
  addToQuery(url, "set", Object.entries(all));
  return url.href;
}

/** The token becomes a header value, so only visible ASCII characters are allowed. */
export function accessToken({ access_token: token }: Members): string | undefined {
  return typeof token === "string" && /^[\x21-\x7e]+$/.test(token) ? token : undefined;
}

/** Returns undefined if the response names no lifetime. Some servers send it as a string. */
export function lifetimeMs({ expires_in: lifetime }: Members): number | undefined {
  const seconds = typeof lifetime === "string" ? Number(lifetime) : lifetime;
  return typeof seconds === "number" && seconds > 0 ? seconds * 1000 : undefined;
}

/** OAuth error codes are fixed words (RFC 6749 section 5.2). Other values might contain secrets and are omitted. */
export function errorSuffix({ error }: Members): string {
  return typeof error === "string" && /^[a-z_]{1,64}$/.test(error) ? ` (${error})` : "";
}
