/**
 * Obtains access tokens for backends: token exchange (RFC 8693), JWT bearer grants (RFC 7523), client credentials, and
 * identity assertion grants (Cross App Access), which combine the first two.
 */

import { randomUUID } from "node:crypto";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { secret, serverUrl } from "../../core/schema.ts";
import { type KeptTokens, keptTokens, type ObtainedToken } from "../../identity/oauth/kept-tokens.ts";
import {
  accessToken,
  errorSuffix,
  type GrantParameters as Form,
  lifetimeMs,
  type OauthResponse,
  requestToken,
} from "../../identity/oauth/oauth-requests.ts";
import { providerFault } from "../../identity/providers/provider-faults.ts";
import { signerOf, signingKeySchema } from "./jwt-sign.ts";

const TIMEOUT_MS = 5_000;
const MAX_TOKEN_RESPONSE_BYTES = 64 * 1024;
const TOKEN_RESPONSE = peerInput("identity-provider/token-response").upTo(MAX_TOKEN_RESPONSE_BYTES);
/** The server accepts the gateway's assertion only for this time. */
const ASSERTION_SECONDS = 60;
/** Applies if the server does not name a lifetime. */
const DEFAULT_LIFETIME_MS = 60_000;

const GRANT = "urn:ietf:params:oauth:grant-type:";
const TOKEN_TYPE = "urn:ietf:params:oauth:token-type:";
/** These OAuth errors (RFC 6749, section 5.2) concern the client's token and not the gateway's configuration. */
const REFUSED: ReadonlySet<string> = new Set(["invalid_grant", "invalid_request", "access_denied"]);

const scope = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, "not a scope");

const tokenEndpoint = {
  tokenUrl: serverUrl().describe("The token endpoint."),
  clientId: z
    .string()
    .min(1)
    .optional()
    .describe("The gateway's client ID. Default: none, for endpoints without client authentication."),
  clientSecret: secret().optional().describe("The client secret, if the client has one."),
  clientAuth: z
    .enum(["basic", "post", "privateKeyJwt"])
    .default("basic")
    .describe(
      "Sends the secret in the authorization header (`basic`) or in the body (`post`), or a JWT that `clientKey` signs (`privateKeyJwt`, RFC 7523). Default: basic.",
    ),
  clientKey: signingKeySchema
    .optional()
    .describe("With `privateKeyJwt`: the private key in PEM (RSA, EC, or Ed25519), or `{file}`."),
  clientKeyId: z.string().min(1).optional().describe("With `privateKeyJwt`: the ID of the key in the JWT's header."),
};

const targets = {
  resources: z
    .array(z.string().min(1))
    .optional()
    .describe("The URLs of the backends that the token is for (`resource`)."),
  scopes: z.array(scope).optional().describe("The requested scopes. Default: those that the server grants."),
};

const subjectTokenType = z
  .enum(["access_token", "jwt", "id_token"])
  .describe("The type of the client's token, as sent to the server.");

interface ClientFields {
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  readonly clientAuth: string;
  readonly clientKey?: unknown;
}

function checkClient(value: ClientFields, context: z.core.$RefinementCtx<ClientFields>): void {
  const { clientId, clientSecret, clientAuth, clientKey } = value;
  const problem = (field: string, message: string): void =>
    void context.issues.push({ code: "custom", path: [field], message, input: value });
  if (clientSecret !== undefined && clientId === undefined) problem("clientSecret", "set `clientId` too");
  if (clientAuth !== "privateKeyJwt") {
    if (clientKey !== undefined) problem("clientKey", "set `clientAuth: privateKeyJwt` too");
    return;
  }
  if (clientId === undefined || clientKey === undefined) problem("clientAuth", "set `clientId` and `clientKey` too");
  if (clientSecret !== undefined) problem("clientSecret", "`clientKey` replaces the secret");
}

export const oauthSchema = z
  .strictObject({
    ...tokenEndpoint,
    grant: z
      .enum(["tokenExchange", "jwtBearer", "clientCredentials"])
      .default("tokenExchange")
      .describe(
        "`tokenExchange` (RFC 8693) and `jwtBearer` (RFC 7523) send the client's token to the server. `clientCredentials` requests a token for the gateway itself. Default: tokenExchange.",
      ),
    audiences: z
      .array(z.string().min(1))
      .optional()
      .describe("The identifiers of the backends that the token is for (`audience`)."),
    ...targets,
    subjectTokenType: subjectTokenType.default("access_token"),
    parameters: z
      .record(z.string().min(1), secret())
      .optional()
      .describe("Further parameters of the token request, for example `requested_token_use: on_behalf_of`."),
  })
  .superRefine(checkClient);

const endpoint = z.strictObject(tokenEndpoint).superRefine(checkClient);

export const crossAppAccessSchema = z.strictObject({
  identityProvider: endpoint.describe(
    "The identity provider, which exchanges the client's token for an identity assertion (ID-JAG).",
  ),
  resourceServer: endpoint.describe(
    "The authorization server of the backend, which exchanges the assertion for an access token.",
  ),
  audience: z.string().min(1).describe("The issuer of the backend's authorization server."),
  ...targets,
  subjectTokenType: subjectTokenType.default("id_token"),
});

type Endpoint = z.output<typeof endpoint>;

/** The server did not accept the client's token. Other failures are Errors. */
export class TokenRefused extends Error {}

export type TokenEnv = Pick<CompileEnv, "fetch" | "clock" | "readFile">;

/** Returns the texts of all private keys, which may be in files. */
export function clientKeys(endpoints: readonly Partial<Endpoint>[], env: Pick<CompileEnv, "readFile">): string[] {
  return endpoints.flatMap(({ clientKey: key }) =>
    key === undefined ? [] : [typeof key === "string" ? key : env.readFile(key.file)],
  );
}

export function oauthTokens(config: z.output<typeof oauthSchema>, env: TokenEnv): KeptTokens {
  const { grant, audiences = [], resources = [], scopes, subjectTokenType: type, parameters = {} } = config;
  const common: Form = [
    ...audiences.map((audience) => ["audience", audience] as const),
    ...wanted(resources, scopes),
    ...Object.entries(parameters),
  ];
  const forms: Record<typeof grant, (subject: string) => Form> = {
    tokenExchange: (subject) => [...exchangeForm(subject, type, "access_token"), ...common],
    jwtBearer: (subject) => [...bearerForm(subject), ...common],
    clientCredentials: () => [["grant_type", "client_credentials"], ...common],
  };
  const request = tokenServer(config, env);
  return keptTokens(grant === "clientCredentials", env.clock, (subject) => request(forms[grant](subject)));
}

export function crossAppTokens(config: z.output<typeof crossAppAccessSchema>, env: TokenEnv): KeptTokens {
  const { identityProvider, resourceServer, audience, resources = [], scopes, subjectTokenType: type } = config;
  const requestAssertion = tokenServer(identityProvider, env);
  const requestToken = tokenServer(resourceServer, env);
  return keptTokens(false, env.clock, async (subject) => {
    const target: Form = [["audience", audience], ...wanted(resources, scopes)];
    const assertion = await requestAssertion([...exchangeForm(subject, type, "id-jag"), ...target]);
    return requestToken([...bearerForm(assertion.token), ...wanted([], scopes)]);
  });
}

function exchangeForm(subject: string, type: string, requested: string): Form {
  return [
    ["grant_type", `${GRANT}token-exchange`],
    ["subject_token", subject],
    ["subject_token_type", `${TOKEN_TYPE}${type}`],
    ["requested_token_type", `${TOKEN_TYPE}${requested}`],
  ];
}

function bearerForm(assertion: string): Form {
  return [
    ["grant_type", `${GRANT}jwt-bearer`],
    ["assertion", assertion],
  ];
}

function wanted(resources: readonly string[], scopes: readonly string[] | undefined): Form {
  const list = resources.map((resource) => ["resource", resource] as const);
  return scopes === undefined ? list : [...list, ["scope", scopes.join(" ")]];
}

/** Returns a function that sends a token request with the gateway's client. */
function tokenServer(server: Endpoint, { fetch, clock, readFile }: TokenEnv): (form: Form) => Promise<ObtainedToken> {
  const { tokenUrl: url, clientId, clientSecret, clientAuth, clientKey, clientKeyId: kid } = server;
  const sign = clientKey === undefined ? undefined : signerOf("clientKey", clientKey, { kid }, { readFile });
  const endpoint = { url, fetch, timeoutMs: TIMEOUT_MS, input: TOKEN_RESPONSE };
  const assertion =
    sign && ((id: string, audience: string) => sign(JSON.stringify(assertionClaims(id, audience, clock))));
  const client = { clientId, clientSecret, method: clientAuth === "post" ? "post" : "basic", assertion } as const;
  return async (form) => obtainedToken(await requestToken(endpoint, client, form), new URL(url).host, clock.now());
}

function assertionClaims(clientId: string, audience: string, clock: Clock): Record<string, unknown> {
  const iat = Math.floor(clock.now() / 1000);
  return { iss: clientId, sub: clientId, aud: audience, jti: randomUUID(), iat, exp: iat + ASSERTION_SECONDS };
}

function obtainedToken({ status, text, members }: OauthResponse, host: string, nowMs: number): ObtainedToken {
  if (status !== 200) {
    // Descriptions might contain secrets, so only known ones are explained.
    const fault = providerFault(text);
    const explanation = fault === undefined ? "" : `: ${fault.cause}; ${fault.hint}`;
    const message = `${host} answered with status ${status}${errorSuffix(members)}${explanation}`;
    const isRefused = status < 500 && REFUSED.has(String(members.error)) && fault?.isSetup !== true;
    throw isRefused ? new TokenRefused(message) : new Error(message);
  }
  const token = accessToken(members);
  if (token === undefined) throw new Error(`${host} answered without a token`);
  return { token, untilMs: nowMs + (lifetimeMs(members) ?? DEFAULT_LIFETIME_MS) };
}
