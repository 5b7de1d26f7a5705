/**
 * Logs in like an MCP client: metadata, registration, authorization code with PKCE in a window of the identity
 * provider, and token. The token is kept only in the page's memory.
 */
import { postJson } from "../../data/api.ts";
import { callListener } from "../../data/call.ts";
import type { Endpoint } from "../../data/endpoints.ts";

export interface Leg {
  readonly title: string;
  readonly state: "running" | "done" | "failed";
  readonly detail: unknown;
}

export type Report = (legs: readonly Leg[]) => void;

/** Represents the message from the sign-in window to the page that opened it. */
export interface LoginResult {
  readonly state: string | null;
  readonly code: string | null;
  readonly error: string | null;
}

export const LOGIN_CHANNEL = "gateway-login";
const CALLBACK = "/ui/callback";

/** Resolves with the access token. */
export async function login(
  endpoint: Endpoint,
  authenticate: string | undefined,
  report: Report,
  signal: AbortSignal,
): Promise<string> {
  const legs: Leg[] = [];
  async function leg<Value>(
    title: string,
    run: () => Promise<Value>,
    shown: (value: Value) => unknown = (value) => value,
  ): Promise<Value> {
    const index = legs.push({ title, state: "running", detail: undefined }) - 1;
    report([...legs]);
    try {
      const value = await run();
      legs[index] = { title, state: "done", detail: shown(value) };
      report([...legs]);
      return value;
    } catch (error) {
      legs[index] = { title, state: "failed", detail: (error as Error).message };
      report([...legs]);
      throw error;
    }
  }

  const metadataUrl = /resource_metadata="([^"]+)"/.exec(authenticate ?? "")?.[1];
  const resourcePath = metadataUrl
    ? new URL(metadataUrl).pathname
    : `/.well-known/oauth-protected-resource${endpoint.path}`;
  const resource = await leg("Protected resource metadata", () => getJson(endpoint, resourcePath));
  const server = await leg("Authorization server metadata", () => serverMetadata(endpoint));
  const redirectUri = location.origin + CALLBACK;
  const scopes = (resource.scopes_supported as string[] | undefined) ?? [];
  const client = await leg("Client registration", () => register(endpoint, server, redirectUri));
  const verifier = randomText();
  const state = randomText();
  const url = authorizationUrl(String(server.authorization_endpoint), {
    response_type: "code",
    client_id: String(client.client_id),
    redirect_uri: redirectUri,
    code_challenge: await challengeOf(verifier),
    code_challenge_method: "S256",
    state,
    ...(scopes.length > 0 ? { scope: scopes.join(" ") } : {}),
    ...(typeof resource.resource === "string" ? { resource: resource.resource } : {}),
  });
  const code = await leg(
    `Sign in at ${new URL(url).origin}`,
    () => authorize(url, state, signal),
    () => "received a code",
  );
  const token = await leg(
    "Token",
    () =>
      requestToken(endpoint, {
        grant_type: "authorization_code",
        code,
        redirect_uri: redirectUri,
        client_id: String(client.client_id),
        code_verifier: verifier,
        ...(typeof client.client_secret === "string" ? { client_secret: client.client_secret } : {}),
        ...(typeof resource.resource === "string" ? { resource: resource.resource } : {}),
      }),
    (response) => withoutTokens(response),
  );
  return String(token.access_token);
}

type Document = Record<string, unknown>;

async function getJson(endpoint: Endpoint, path: string): Promise<Document> {
  const response = await callListener({ listener: endpoint.listener, method: "GET", path, headers: hostOf(endpoint) });
  if (response.status !== 200) throw new Error(`${path} responded with ${response.status}`);
  return JSON.parse(response.text) as Document;
}

async function serverMetadata(endpoint: Endpoint): Promise<Document> {
  const path = "/.well-known/oauth-authorization-server";
  return getJson(endpoint, `${path}${endpoint.path}`).catch(() => getJson(endpoint, path));
}

async function register(endpoint: Endpoint, server: Document, redirectUri: string): Promise<Document> {
  const url = new URL(String(server.registration_endpoint ?? "/"), location.origin);
  const response = await callListener({
    listener: endpoint.listener,
    method: "POST",
    path: url.pathname + url.search,
    headers: { "content-type": "application/json", ...hostOf(endpoint) },
    body: JSON.stringify({
      client_name: "Gateway UI",
      redirect_uris: [redirectUri],
      grant_types: ["authorization_code"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    }),
  });
  if (response.status >= 300)
    throw new Error(`registration failed with status ${response.status}: ${response.text.slice(0, 500)}`);
  return JSON.parse(response.text) as Document;
}

/** Opens the provider's page and resolves with the authorization code. */
function authorize(url: string, state: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const channel = new BroadcastChannel(LOGIN_CHANNEL);
    const finish = (end: () => void): void => {
      channel.close();
      end();
    };
    channel.onmessage = ({ data }: MessageEvent<LoginResult>) => {
      if (data.state !== state) return;
      if (data.code !== null) finish(() => resolve(data.code ?? ""));
      else finish(() => reject(new Error(data.error ?? "the provider rejected the login")));
    };
    signal.addEventListener("abort", () => finish(() => reject(new Error("cancelled"))));
    if (!window.open(url, "_blank", "popup,width=520,height=680"))
      finish(() => reject(new Error("the browser blocked the sign-in window: allow pop-ups for this page")));
  });
}

async function requestToken(endpoint: Endpoint, form: Record<string, string>): Promise<Document> {
  const { status, body } = await postJson<{ status: number; body: Document }>("token", {
    listener: endpoint.listener,
    resourcePath: endpoint.path,
    form,
  });
  if (status !== 200 || typeof body.access_token !== "string")
    throw new Error(`the token endpoint responded with ${status}: ${JSON.stringify(body)}`);
  return body;
}

function hostOf({ host }: Endpoint): Record<string, string> {
  return host === undefined ? {} : { host };
}

function authorizationUrl(base: string, parameters: Record<string, string>): string {
  const url = new URL(base);
  // A `javascript:` URL from the metadata would run a script in this origin.
  if (url.protocol !== "https:" && url.protocol !== "http:")
    throw new Error("the authorization endpoint is not an http or https URL");
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return url.href;
}

function randomText(): string {
  return base64Url(crypto.getRandomValues(new Uint8Array(32)));
}

async function challengeOf(verifier: string): Promise<string> {
  return base64Url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

function base64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

function withoutTokens(response: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(response).map(([name, value]) => [name, /_token$/.test(name) && value ? "<received>" : value]),
  );
}
