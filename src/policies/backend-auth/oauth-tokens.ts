/**
 * Obtains access tokens for backends: token exchange (RFC 8693), JWT bearer grants (RFC 7523), client credentials, and
 * identity assertion grants (Cross App Access), which combine the first two.
 */
import { hash, randomUUID } from "node:crypto";
import { LRUCache } from "lru-cache";
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { secret, serverUrl } from "../../core/schema.ts";
import { providerFault } from "../../identity/providers/provider-faults.ts";
import type { SignJwt } from "../../identity/tokens/sign-jwt.ts";
import { parseMembers } from "../../json/json.ts";
import { signerOf, signingKeySchema } from "./jwt-sign.ts";

const TIMEOUT_MS = 5_000;
const MAX_TOKEN_RESPONSE_BYTES = 64 * 1024;
const MAX_KEPT_TOKENS = 10_000;
const MAX_KEPT_TOKEN_BYTES = 16 * 1024 * 1024;
/** A token is not used this shortly before it expires, because the request takes time. */
const EARLY_MS = 15_000;
/** Limits how long a token is reused, because the client's permission may have been revoked. */
const MAX_KEPT_MS = 300_000;
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
type Form = readonly (readonly [name: string, value: string])[];

/** The server did not accept the client's token. Other failures are Errors. */
export class TokenRefused extends Error {}

export interface BackendTokens {
  /** True if every request has the same token. */
  readonly isShared: boolean;
  /** Rejects with `TokenRefused`, or with an Error that names the server's problem but no secrets. */
  get(subject: string): Promise<string>;
}

interface Obtained {
  readonly token: string;
  readonly untilMs: number;
}

export type TokenEnv = Pick<CompileEnv, "fetch" | "clock" | "readFile">;

/** Returns the texts of all private keys, which may be in files. */
export function clientKeys(endpoints: readonly Partial<Endpoint>[], env: Pick<CompileEnv, "readFile">): string[] {
  return endpoints.flatMap(({ clientKey: key }) =>
    key === undefined ? [] : [typeof key === "string" ? key : env.readFile(key.file)],
  );
}

export function oauthTokens(config: z.output<typeof oauthSchema>, env: TokenEnv): BackendTokens {
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
  return keptTokens(grant === "clientCredentials", env, (subject) => request(forms[grant](subject)));
}

export function crossAppTokens(config: z.output<typeof crossAppAccessSchema>, env: TokenEnv): BackendTokens {
  const { identityProvider, resourceServer, audience, resources = [], scopes, subjectTokenType: type } = config;
  const requestAssertion = tokenServer(identityProvider, env);
  const requestToken = tokenServer(resourceServer, env);
  return keptTokens(false, env, async (subject) => {
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

/** Requests that need the same token at the same time share one token request. */
function keptTokens(
  isShared: boolean,
  { clock }: TokenEnv,
  obtain: (subject: string) => Promise<Obtained>,
): BackendTokens {
  const kept = new LRUCache<string, Obtained>({
    max: MAX_KEPT_TOKENS,
    maxSize: MAX_KEPT_TOKEN_BYTES,
    sizeCalculation: ({ token }) => token.length,
  });
  const running = new Map<string, Promise<string>>();

  async function obtained(key: string, subject: string): Promise<string> {
    const { token, untilMs } = await obtain(subject);
    const nowMs = clock.now();
    const limitMs = Math.min(untilMs - EARLY_MS, nowMs + MAX_KEPT_MS, isShared ? Infinity : expiryMs(subject));
    if (limitMs > nowMs) kept.set(key, { token, untilMs: limitMs });
    return token;
  }

  return {
    isShared,
    get(subject) {
      const key = isShared ? "" : hash("sha256", subject, "base64");
      const known = kept.get(key);
      if (known !== undefined && known.untilMs > clock.now()) return Promise.resolve(known.token);
      const waiting = running.get(key);
      if (waiting !== undefined) return waiting;
      const started = obtained(key, subject).finally(() => running.delete(key));
      running.set(key, started);
      return started;
    },
  };
}

/** The server verifies the token. Here the expiry only bounds how long the result is kept. */
function expiryMs(token: string): number {
  const payload = token.split(".")[1];
  const claims = payload === undefined ? undefined : parseMembers(Buffer.from(payload, "base64url").toString());
  return typeof claims?.exp === "number" ? claims.exp * 1000 : Infinity;
}

/** Returns a function that sends a token request with the gateway's client. */
function tokenServer(server: Endpoint, { fetch, clock, readFile }: TokenEnv): (form: Form) => Promise<Obtained> {
  const { tokenUrl: url, clientKey, clientKeyId: kid } = server;
  const sign = clientKey === undefined ? undefined : signerOf("clientKey", clientKey, { kid }, { readFile });
  return async (form) => {
    const body = new URLSearchParams(form.map(([name, value]) => [name, value]));
    const headers: Record<string, string> = {
      "content-type": "application/x-www-form-urlencoded",
      accept: "application/json",
    };
    if (sign !== undefined) addAssertion(body, server, sign, clock);
    else addClient(headers, body, server);
    const response = await fetch({
      url,
      method: "POST",
      headers,
      body: Buffer.from(body.toString()),
      timeoutMs: TIMEOUT_MS,
      maxBytes: MAX_TOKEN_RESPONSE_BYTES,
    });
    return readToken(response.status, response.body.toString("utf8"), new URL(url).host, clock.now());
  };
}

function addClient(
  headers: Record<string, string>,
  body: URLSearchParams,
  { clientId, clientSecret, clientAuth }: Endpoint,
): void {
  if (clientId !== undefined && clientSecret !== undefined && clientAuth === "basic") {
    const pair = `${encodeURIComponent(clientId)}:${encodeURIComponent(clientSecret)}`;
    headers.authorization = `Basic ${Buffer.from(pair).toString("base64")}`;
  } else if (clientId !== undefined) {
    body.set("client_id", clientId);
    if (clientSecret !== undefined) body.set("client_secret", clientSecret);
  }
}

/** Authenticates the client with a signed JWT (RFC 7523, section 2.2). */
function addAssertion(body: URLSearchParams, { clientId = "", tokenUrl }: Endpoint, sign: SignJwt, clock: Clock): void {
  const iat = Math.floor(clock.now() / 1000);
  const claims = { iss: clientId, sub: clientId, aud: tokenUrl, jti: randomUUID(), iat, exp: iat + ASSERTION_SECONDS };
  body.set("client_id", clientId);
  body.set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
  body.set("client_assertion", sign(claims));
}

function readToken(status: number, text: string, host: string, nowMs: number): Obtained {
  const { access_token: token, expires_in: lifetime, error } = parseMembers(text) ?? {};
  if (status !== 200) {
    // OAuth error codes are fixed words. Descriptions might contain secrets, so only known ones are explained.
    const code = typeof error === "string" && /^[a-z_]{1,64}$/.test(error) ? ` (${error})` : "";
    const fault = providerFault(text);
    const explanation = fault === undefined ? "" : `: ${fault.cause}; ${fault.hint}`;
    const message = `${host} answered with status ${status}${code}${explanation}`;
    const isRefused = status < 500 && REFUSED.has(String(error)) && fault?.isSetup !== true;
    throw isRefused ? new TokenRefused(message) : new Error(message);
  }
  // The token becomes a header value, so only visible ASCII characters are allowed.
  if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token)) throw new Error(`${host} answered without a token`);
  const seconds = typeof lifetime === "string" ? Number(lifetime) : lifetime;
  const isKnown = typeof seconds === "number" && seconds > 0;
  return { token, untilMs: nowMs + (isKnown ? seconds * 1000 : DEFAULT_LIFETIME_MS) };
}
