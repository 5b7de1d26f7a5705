/**
 * Tries a login at the real provider as far as possible without a user, with temporary clients or the operator's
 * client.
 */
import { newForm, readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";
import { type Discovered, errorDetail, type IdentityProvider, type RegisteredClient } from "../providers/provider.ts";
import { providerFault } from "../providers/provider-faults.ts";
import { callbackAddress } from "./client-callback.ts";
import { failed, LEG_LIMITS, type LoginCheckOptions, type LoginLeg, notChecked, rejectedLeg } from "./login-leg.ts";

const REGISTERED_CLIENT = peerInput("identity-provider/registration");
const REDIRECT = peerInput("identity-provider/redirect");

const REDIRECT_URI = "http://127.0.0.1:33418/callback";
/** The value is the example of RFC 7636, appendix B. */
const CODE_CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

const ISS_PROBLEM = "the callback carries the provider's `iss`, which strict clients reject";
const OWN_CLIENT_ISS_HINT =
  "set `redirectUris: [loopback]` and enter the gateway's callback at the provider, or switch `iss` off for the client there";
const CLIENT_HINT = "compare `clientId` and `clientSecret` with the client at the provider";

/** A provider that would show a login page returns one of these errors for `prompt=none`. */
const LOGIN_REQUIRED_ERRORS = new Set([
  "login_required",
  "interaction_required",
  "consent_required",
  "account_selection_required",
  "access_denied",
]);

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
  let client: RegisteredClient | undefined;
  for (const { clients, registration } of trialRegistrations(options, provider, discovered)) {
    try {
      const response = await sendJson(options.fetch, "POST", url, registration);
      if (response.status >= 300) {
        const leg = rejectedLeg("registration", response);
        yield { ...leg, message: `as ${clients.join(", ")} register: ${leg.message}` };
        continue;
      }
      const registered = readJson(REGISTERED_CLIENT, response.body) as RegisteredClient;
      if (client === undefined) client = registered;
      else await deleteClient(options.fetch, registered);
    } catch (error) {
      yield failed("registration", `${url}: ${errorDetail(error)}`, providerFault(errorDetail(error))?.hint);
      return;
    }
  }
  if (client === undefined) return;
  yield { leg: "registration", ok: true, message: `${url} registers clients (the test client was deleted)` };

  const completion = provider.completion?.request(discovered, client);
  if (completion) {
    const response = await sendJson(options.fetch, "PUT", completion.url, completion.body, completion.token).catch(
      () => undefined,
    );
    if (response?.status === 200)
      client =
        provider.completion?.merge(client, readJson(REGISTERED_CLIENT, response.body) as RegisteredClient) ?? client;
  }
  const issHint = provider.completion?.hint ?? "set `resourceMetadata.authorizationServers` to the provider";
  yield await authorizeLeg(options, issHint, discovered, String(client.client_id));
  await deleteClient(options.fetch, client);
}

/**
 * Returns the registrations of known clients in the form that the provider receives: minimal, with all scopes from the
 * gateway's documents, and with a vendor URL. Identical registrations are merged.
 */
function trialRegistrations(
  { policy }: LoginCheckOptions,
  provider: IdentityProvider,
  discovered: Discovered,
): readonly { readonly clients: readonly string[]; readonly registration: object }[] {
  const bare = {
    client_name: "gateway login check",
    redirect_uris: [REDIRECT_URI],
    grant_types: ["authorization_code"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  const shown = provider.metadata(discovered, { issuer: "", register: "", authorize: "", token: "" }).scopes_supported;
  const scopes = policy.resourceMetadata.scopesSupported ?? (Array.isArray(shown) ? shown : []);
  const scope = scopes.length === 0 ? {} : { scope: scopes.join(" ") };
  const page = { client_uri: "https://github.com/modelcontextprotocol/inspector" };
  const all = [
    { clients: ["Claude Code", "VS Code", "the TypeScript SDK"], registration: bare },
    { clients: ["the Python SDK", "FastMCP", "Codex"], registration: { ...bare, ...scope } },
    { clients: ["mcp-remote", "Inspector"], registration: { ...bare, ...scope, ...page } },
  ];
  const distinct = new Map<string, { clients: string[]; registration: object }>();
  for (const { clients, registration } of all) {
    const fitted = provider.fitRegistration?.(registration) ?? registration;
    const key = JSON.stringify(fitted);
    const same = distinct.get(key) ?? { clients: [], registration: fitted };
    same.clients.push(...clients);
    distinct.set(key, same);
  }
  return [...distinct.values()];
}

async function authorizeLeg(
  options: LoginCheckOptions,
  issHint: string,
  discovered: Discovered,
  clientId: string,
  notRedirected: (response: FetchResponse) => LoginLeg = (response) => rejectedLeg("authorize", response),
): Promise<LoginLeg> {
  const endpoint = String(discovered.authorization_endpoint);
  const scopes = options.policy.resourceMetadata.scopesSupported ?? [];
  const redirectUri = getRedirectUri(options);
  const query = newForm({
    ...(scopes.length === 0 ? {} : { scope: scopes.join(" ") }),
    response_type: "code",
    client_id: clientId,
    redirect_uri: redirectUri,
    prompt: "none",
    state: "check",
    code_challenge: CODE_CHALLENGE,
    code_challenge_method: "S256",
  });
  let response: FetchResponse;
  try {
    response = await options.fetch({ url: `${endpoint}?${query}`, headers: { accept: "text/html" }, ...LEG_LIMITS });
  } catch (error) {
    return failed("authorize", `${endpoint}: ${errorDetail(error)}`);
  }
  const location = response.headers.get("location");
  if (location === undefined || !location.startsWith(redirectUri)) return notRedirected(response);
  const error = readForm(REDIRECT, new URL(location).search).get("error");
  if (error === "invalid_scope")
    return failed(
      "authorize",
      `the provider does not know all of the scopes ${scopes.join(" ")}`,
      "correct `scopesSupported`, or add the scopes to the client's at the provider",
    );
  if (error !== null && !LOGIN_REQUIRED_ERRORS.has(error)) return rejectedLeg("authorize", response);
  const readsIss = namesProviderDirectly(options) || options.policy.redirectUris !== undefined;
  if (readForm(REDIRECT, new URL(location).search).has("iss") && !readsIss) {
    return failed("authorize", ISS_PROBLEM, issHint);
  }
  return { leg: "authorize", ok: true, message: `${endpoint} sends users back to the client` };
}

/** A provider that sends `iss` advertises it (RFC 9207 section 3). */
function issNote({ authorization_response_iss_parameter_supported: sends }: Discovered): string {
  return sends === true ? "; the provider sends its `iss` to clients, which strict ones reject" : "";
}

function getRedirectUri({ policy }: LoginCheckOptions): string {
  return policy.redirectUris === undefined ? REDIRECT_URI : callbackAddress(policy.resourceMetadata.resource);
}

function namesProviderDirectly({ policy }: LoginCheckOptions): boolean {
  return policy.resourceMetadata.authorizationServers !== undefined;
}

/** Exchanges an invalid code, because the provider's error shows whether the operator's client and secret are valid. */
export async function* ownClientLegs(
  options: LoginCheckOptions,
  provider: IdentityProvider,
  discovered: Discovered,
): AsyncGenerator<LoginLeg> {
  yield {
    leg: "registration",
    ok: true,
    message: `the gateway answers it with the client id ${options.policy.clientId}`,
  };
  const tokenUrl = provider.login?.tokenUrl ?? String(discovered.token_endpoint);
  const form = newForm({
    grant_type: "authorization_code",
    client_id: options.policy.clientId ?? "",
    code: "check",
    redirect_uri: getRedirectUri(options),
    code_verifier: "a".repeat(43),
  });
  try {
    const body = Buffer.from(provider.login?.rewriteTokenRequest(form.toString(), false) ?? form.toString());
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    const response = await options.fetch({ url: tokenUrl, method: "POST", headers, body, ...LEG_LIMITS });
    const isCodeRejected = /"error"\s*:\s*"invalid_grant"/.test(response.body.toString("utf8"));
    const message =
      provider.name === "idp_tenant"
        ? `${tokenUrl} knows the app registration; a redirect URI on the single-page-application platform would appear only in a real login`
        : `${tokenUrl} knows the client`;
    yield isCodeRejected
      ? { leg: "token endpoint", ok: true, message }
      : { hint: CLIENT_HINT, ...rejectedLeg("token endpoint", response) };
  } catch (error) {
    yield failed("token endpoint", `${tokenUrl}: ${errorDetail(error)}`);
  }
  if (provider.name === "plain" && options.policy.clientId !== undefined)
    yield await authorizeLeg(options, OWN_CLIENT_ISS_HINT, discovered, options.policy.clientId, () => {
      const message = `the client does not accept ${getRedirectUri(options)} as a redirect URI`;
      return options.policy.redirectUris === undefined
        ? notChecked("authorize", `${message}${issNote(discovered)}`)
        : failed("authorize", message, "add this address to the client's redirect URIs at the provider");
    });
}

async function deleteClient(fetch: Fetch, client: RegisteredClient): Promise<void> {
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
