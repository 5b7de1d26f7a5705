/**
 * `gwctl auth check`: walks the legs of a login against the real provider, without a user and without a running
 * gateway, and says for each whether it works or what mends it. It registers a client where clients would and takes
 * it back at once. What only a signed-in user can show (the audience) is checked on a token, if one is given.
 */
import type { Clock } from "../lib/clock.ts";
import type { Fetch, FetchResponse } from "../lib/fetch.ts";
import { claimProblem } from "./claims.ts";
import { createProvider, type ProviderChoice } from "./create-provider.ts";
import { fetchMetadata } from "./discovery.ts";
import { createKeyTable, keysFor, requireKeys } from "./key-set.ts";
import { type KeySource, keySourceOf } from "./key-source.ts";
import type { Discovered, IdentityProvider, RegisteredClient } from "./provider.ts";
import { detailOf } from "./provider-error.ts";
import { type ProviderFault, providerFault } from "./provider-faults.ts";
import { parseToken, type TokenProblem } from "./token.ts";
import { type ReadKeys, readKeySet, readKeySetObject, verifySignature } from "./verification-key.ts";

export interface LoginPolicy extends ProviderChoice {
  readonly audiences: readonly string[];
  readonly jwks?: Parameters<typeof keySourceOf>[0];
  readonly resourceMetadata: {
    readonly resource: string;
    readonly authorizationServers?: readonly string[] | undefined;
  };
}

export interface LoginCheckOptions {
  readonly policy: LoginPolicy;
  readonly fetch: Fetch;
  readonly clock: Clock;
  /** The text of a key file that the policy names. */
  readFile(path: string): string;
  /** An access token of a real login. */
  readonly token?: string | undefined;
}

export interface LoginLeg {
  readonly leg: "metadata" | "keys" | "pkce" | "registration" | "authorize" | "token endpoint" | "token";
  /** Undefined: it was not checked. */
  readonly ok: boolean | undefined;
  readonly message: string;
  readonly mend?: string;
}

const LIMITS = { timeoutMs: 10_000, maxBytes: 1024 * 1024 };
/** Never opened: the provider only has to accept it. */
const REDIRECT_URI = "http://127.0.0.1:33418/callback";
/** The example of RFC 7636, appendix B. */
const CODE_CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

export async function* checkLogin(options: LoginCheckOptions): AsyncGenerator<LoginLeg> {
  const { policy } = options;
  const provider = createProvider(policy);
  let discovered: Discovered | undefined;
  try {
    const found = await fetchMetadata({ ...options, urls: provider.discoveryUrls, issuer: provider.discoveredIssuer });
    discovered = found.document;
    yield { leg: "metadata", ok: true, message: `${found.url} names the issuer ${provider.discoveredIssuer}` };
  } catch (error) {
    yield failed("metadata", detailOf(error), metadataMend(provider, detailOf(error)));
  }

  let keys: ReadKeys | undefined;
  try {
    const source = keySourceOf(policy.jwks, provider);
    if (source.kind === "discovered" && !discovered) {
      yield notChecked("keys", "the metadata, which names their place, could not be read");
    } else {
      const { read, from } = await readKeys(options, source, discovered);
      keys = requireKeys(read);
      const skipped = keys.skipped.length === 0 ? "" : `; left out: ${keys.skipped.join("; ")}`;
      yield { leg: "keys", ok: true, message: `${keys.keys.length} usable at ${from}${skipped}` };
    }
  } catch (error) {
    yield failed("keys", detailOf(error), "compare `issuer` with the provider's own address, or set `jwks`");
  }

  if (discovered) {
    yield pkceLeg(provider, discovered);
    if (provider.login) yield* tenantLegs(options, provider);
    else yield* registrationLegs(options, provider, discovered);
  }
  yield tokenLeg(options, provider, keys);
}

async function readKeys(
  options: LoginCheckOptions,
  source: KeySource,
  discovered: Discovered | undefined,
): Promise<{ read: ReadKeys; from: string }> {
  if (source.kind === "file") return { read: readKeySet(options.readFile(source.path)), from: source.path };
  if (source.kind === "inline") {
    const { value } = source;
    return { read: typeof value === "string" ? readKeySet(value) : readKeySetObject(value), from: "`jwks`" };
  }
  const url = source.kind === "url" ? source.url : discovered?.jwks_uri;
  if (typeof url !== "string") throw new Error("the metadata names no jwks_uri");
  const response = await options.fetch({ url, ...LIMITS });
  if (response.status !== 200) throw new Error(`${url} answered with status ${response.status}: ${textOf(response)}`);
  return { read: readKeySet(response.body.toString("utf8")), from: url };
}

function pkceLeg(provider: IdentityProvider, discovered: Discovered): LoginLeg {
  const methods = discovered.code_challenge_methods_supported;
  // The tenant provider supports it without saying so; the gateway says it instead.
  if (provider.login || (Array.isArray(methods) && methods.includes("S256")))
    return { leg: "pkce", ok: true, message: "S256 is supported" };
  return failed(
    "pkce",
    "the metadata does not name the code challenge method S256",
    "MCP clients need it: switch PKCE with S256 on at the provider",
  );
}

/** Registers as a client would, looks at the login page's answer, and takes the registration back. */
async function* registrationLegs(
  options: LoginCheckOptions,
  provider: IdentityProvider,
  discovered: Discovered,
): AsyncGenerator<LoginLeg> {
  const url = provider.registrationUrl?.(discovered);
  if (url === undefined) {
    yield failed(
      "registration",
      "the provider takes no client registrations",
      "give clients a client id that you created at the provider",
    );
    return;
  }
  const metadata = {
    client_name: "gateway login check",
    redirect_uris: [REDIRECT_URI],
    grant_types: ["authorization_code"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  let client: RegisteredClient;
  try {
    const response = await sendJson(options.fetch, "POST", url, metadata);
    if (response.status >= 300) {
      yield refusedLeg("registration", response);
      return;
    }
    client = JSON.parse(response.body.toString("utf8")) as RegisteredClient;
  } catch (error) {
    yield failed("registration", `${url}: ${detailOf(error)}`);
    return;
  }
  yield { leg: "registration", ok: true, message: `${url} registers clients (the trial one is taken back)` };

  const completion = provider.completion?.request(discovered, client);
  if (completion) {
    const response = await sendJson(options.fetch, "PUT", completion.url, completion.body, completion.token).catch(
      () => undefined,
    );
    if (response?.status === 200)
      client = provider.completion?.merge(client, JSON.parse(response.body.toString("utf8"))) ?? client;
  }
  yield await authorizeLeg(options, provider, discovered, String(client.client_id));
  await takeBack(options.fetch, client);
}

async function authorizeLeg(
  options: LoginCheckOptions,
  provider: IdentityProvider,
  discovered: Discovered,
  clientId: string,
): Promise<LoginLeg> {
  const endpoint = String(discovered.authorization_endpoint);
  const query = new URLSearchParams({
    response_type: "code",
    client_id: clientId,
    redirect_uri: REDIRECT_URI,
    prompt: "none",
    state: "check",
    code_challenge: CODE_CHALLENGE,
    code_challenge_method: "S256",
  });
  let response: FetchResponse;
  try {
    response = await options.fetch({ url: `${endpoint}?${query}`, headers: { accept: "text/html" }, ...LIMITS });
  } catch (error) {
    return failed("authorize", `${endpoint}: ${detailOf(error)}`);
  }
  const location = response.headers.get("location");
  if (location === undefined || !location.startsWith(REDIRECT_URI)) return refusedLeg("authorize", response);
  const namesDirectly = options.policy.resourceMetadata.authorizationServers !== undefined;
  if (new URL(location).searchParams.has("iss") && !namesDirectly) {
    return failed(
      "authorize",
      "the callback carries the provider's `iss`, which strict clients refuse",
      provider.completion?.mend ?? "name the provider in `resourceMetadata.authorizationServers`",
    );
  }
  return { leg: "authorize", ok: true, message: `${endpoint} sends users back to the client` };
}

/** A code that cannot be valid: the error tells whether the app registration and the secret are. */
async function* tenantLegs(options: LoginCheckOptions, provider: IdentityProvider): AsyncGenerator<LoginLeg> {
  yield {
    leg: "registration",
    ok: true,
    message: `the gateway answers it with the client id ${options.policy.clientId}`,
  };
  if (!provider.login) return;
  const { tokenUrl } = provider.login;
  const asked = new URLSearchParams({
    grant_type: "authorization_code",
    client_id: options.policy.clientId ?? "",
    code: "check",
    redirect_uri: REDIRECT_URI,
    code_verifier: "a".repeat(43),
  });
  try {
    const body = Buffer.from(provider.login.rewriteTokenRequest(asked.toString(), false));
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    const response = await options.fetch({ url: tokenUrl, method: "POST", headers, body, ...LIMITS });
    const isCodeRefused = /"error"\s*:\s*"invalid_grant"/.test(response.body.toString("utf8"));
    const message = `${tokenUrl} knows the app registration; a redirect URI on the single-page-application platform would show only at a real login`;
    yield isCodeRefused ? { leg: "token endpoint", ok: true, message } : refusedLeg("token endpoint", response);
  } catch (error) {
    yield failed("token endpoint", `${tokenUrl}: ${detailOf(error)}`);
  }
}

function tokenLeg(
  { policy, token, clock }: LoginCheckOptions,
  provider: IdentityProvider,
  keys: ReadKeys | undefined,
): LoginLeg {
  if (token === undefined) {
    return notChecked("token", "give an access token to see whether issuer and audience fit");
  }
  const parsed = parseToken(token);
  if (!parsed.ok) return problemLeg(parsed.problem, provider);
  const { claims } = parsed.value;
  const problem = claimProblem(claims, policy, clock.now());
  if (problem) return problemLeg(problem, provider, claims);
  if (!keys) return notChecked("token", "issuer, audience and times fit, but there are no keys for the signature");
  const found = keysFor(parsed.value, createKeyTable(keys.keys));
  if (!Array.isArray(found)) return problemLeg(found as TokenProblem, provider, claims);
  const isSigned = found.some((key) => verifySignature(parsed.value, key));
  if (!isSigned)
    return failed(
      "token",
      "the signature does not match a key of the provider",
      "the token is of another provider or realm",
    );
  return { leg: "token", ok: true, message: `issuer, audience, times and signature fit; sub is ${String(claims.sub)}` };
}

function problemLeg(
  problem: TokenProblem,
  provider: IdentityProvider,
  claims?: Parameters<IdentityProvider["mend"]>[1],
): LoginLeg {
  return failed("token", problem.detail, provider.mend(problem, claims));
}

async function takeBack(fetch: Fetch, client: RegisteredClient): Promise<void> {
  const { registration_client_uri: url, registration_access_token: token } = client;
  if (typeof url !== "string" || typeof token !== "string") return;
  await fetch({ url, method: "DELETE", headers: { authorization: `Bearer ${token}` }, ...LIMITS }).catch(
    () => undefined,
  );
}

function sendJson(fetch: Fetch, method: string, url: string, body: object, token?: string): Promise<FetchResponse> {
  const headers = {
    "content-type": "application/json",
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  return fetch({ url, method, headers, body: Buffer.from(JSON.stringify(body)), ...LIMITS });
}

function refusedLeg(leg: LoginLeg["leg"], response: FetchResponse): LoginLeg {
  const text = `${textOf(response)} ${response.headers.get("location") ?? ""}`.trim();
  const fault: ProviderFault | undefined = providerFault(text);
  return failed(leg, `status ${response.status}: ${fault?.cause ?? text}`, fault?.mend);
}

function metadataMend(provider: IdentityProvider, detail: string): string | undefined {
  if (/names the issuer/.test(detail)) return "set `issuer` to exactly what the provider calls itself";
  if (/ECONNREFUSED|ENOTFOUND|EAI_AGAIN|no answer within/.test(detail))
    return "check that the provider runs and that this host can reach it";
  if (/status 404/.test(detail))
    return provider.name === "idp_tenant"
      ? "check the tenant id in `issuer`"
      : "check the realm's name and path in `issuer`";
  return providerFault(detail)?.mend;
}

function failed(leg: LoginLeg["leg"], message: string, mend?: string): LoginLeg {
  return { leg, ok: false, message, ...(mend === undefined ? {} : { mend }) };
}

/** What could not be looked at is neither well nor wrong. */
function notChecked(leg: LoginLeg["leg"], why: string): LoginLeg {
  return { leg, ok: undefined, message: `not checked: ${why}` };
}

function textOf(response: FetchResponse): string {
  return response.body.toString("utf8").replace(/\s+/g, " ").slice(0, 300);
}
