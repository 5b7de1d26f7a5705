/**
 * A login tried at the real provider as far as that goes without a user: a client is registered and taken back at once,
 * the login page is asked where it would send it, or a code that cannot be valid is exchanged.
 */
import type { Fetch, FetchResponse } from "../../lib/http/fetch.ts";
import type { Discovered, IdentityProvider, RegisteredClient } from "../providers/provider.ts";
import { detailOf } from "../providers/provider-error.ts";
import { failed, LEG_LIMITS, type LoginCheckOptions, type LoginLeg, refusedLeg } from "./login-leg.ts";

/** Never opened: the provider only has to accept it. */
const REDIRECT_URI = "http://127.0.0.1:33418/callback";
/** The example of RFC 7636, appendix B. */
const CODE_CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/** Registers as a client would, looks at the login page's answer, and takes the registration back. */
export async function* registrationLegs(
  options: LoginCheckOptions,
  provider: IdentityProvider,
  discovered: Discovered,
): AsyncGenerator<LoginLeg> {
  const url = provider.registrationUrl?.(discovered);
  if (url === undefined) {
    yield failed(
      "registration",
      "the provider does not support client registration",
      "create a client at the provider and give its client id to MCP clients",
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
  yield { leg: "registration", ok: true, message: `${url} registers clients (the test client was deleted)` };

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
    response = await options.fetch({ url: `${endpoint}?${query}`, headers: { accept: "text/html" }, ...LEG_LIMITS });
  } catch (error) {
    return failed("authorize", `${endpoint}: ${detailOf(error)}`);
  }
  const location = response.headers.get("location");
  if (location === undefined || !location.startsWith(REDIRECT_URI)) return refusedLeg("authorize", response);
  const namesDirectly = options.policy.resourceMetadata.authorizationServers !== undefined;
  if (new URL(location).searchParams.has("iss") && !namesDirectly) {
    return failed(
      "authorize",
      "the callback carries the provider's `iss`, which strict clients reject",
      provider.completion?.mend ?? "set `resourceMetadata.authorizationServers` to the provider",
    );
  }
  return { leg: "authorize", ok: true, message: `${endpoint} sends users back to the client` };
}

/** A code that cannot be valid: the error tells whether the app registration and the secret are. */
export async function* tenantLegs(options: LoginCheckOptions, provider: IdentityProvider): AsyncGenerator<LoginLeg> {
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
    const response = await options.fetch({ url: tokenUrl, method: "POST", headers, body, ...LEG_LIMITS });
    const isCodeRefused = /"error"\s*:\s*"invalid_grant"/.test(response.body.toString("utf8"));
    const message = `${tokenUrl} knows the app registration; a redirect URI on the single-page-application platform would appear only in a real login`;
    yield isCodeRefused ? { leg: "token endpoint", ok: true, message } : refusedLeg("token endpoint", response);
  } catch (error) {
    yield failed("token endpoint", `${tokenUrl}: ${detailOf(error)}`);
  }
}

async function takeBack(fetch: Fetch, client: RegisteredClient): Promise<void> {
  const { registration_client_uri: url, registration_access_token: token } = client;
  if (typeof url !== "string" || typeof token !== "string") return;
  await fetch({ url, method: "DELETE", headers: { authorization: `Bearer ${token}` }, ...LEG_LIMITS }).catch(
    () => undefined,
  );
}

function sendJson(fetch: Fetch, method: string, url: string, body: object, token?: string): Promise<FetchResponse> {
  const headers = {
    "content-type": "application/json",
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  return fetch({ url, method, headers, body: Buffer.from(JSON.stringify(body)), ...LEG_LIMITS });
}
