/**
 * Serves the login endpoints of a protected route, which need no token: metadata documents, client registration, the
 * proxied authorize and token endpoints, and the callback.
 */

import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { urlLabel } from "../../base/url-label.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { emptyReply, jsonReply, type Reply } from "../../core/reply.ts";
import type { Fetch, FetchResponse } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import { hostOf, isLoopbackHost } from "../../http/host.ts";
import { readJson, readMembers } from "../../json/read-json.ts";
import type { Logger } from "../../record/log/logger.ts";
import { type Discovery, mayCall } from "../providers/discovery.ts";
import { parseForm } from "../providers/oauth-form.ts";
import {
  type ClientRegistration,
  type Discovered,
  errorDetail,
  type IdentityProvider,
  invalidProviderResponse,
  metadataUnavailable,
  OAuthRequestError,
  type ProxiedLogin,
  providerError,
} from "../providers/provider.ts";
import { errorMember, providerFault } from "../providers/provider-faults.ts";
import type { ClientCallback } from "./client-callback.ts";
import type { ClientMetadata } from "./client-metadata.ts";
import type { LoginLimit } from "./login-limit.ts";
import { gatewayEndpoints, type LoginEndpoint } from "./well-known.ts";

const REGISTRATION = peerInput("client/registration");
const REGISTERED_CLIENT = peerInput("identity-provider/registration");

export const MAX_LOGIN_BODY_BYTES = 64 * 1024;
const PROVIDER_TIMEOUT_MS = 10_000;

export interface LoginEndpointsOptions {
  readonly base: string;
  readonly provider: IdentityProvider;
  readonly discovery: Discovery;
  readonly resourceDocument: Readonly<Record<string, unknown>>;
  /** True to remove the scopes from the server metadata, because clients fall back to them. */
  readonly wantsNoScopes?: boolean;
  readonly limit: LoginLimit;
  readonly clientMetadata?: ClientMetadata | undefined;
  readonly callback?: ClientCallback | undefined;
  readonly fetch: Fetch;
  readonly logger: Logger;
}

export interface LoginEndpoints {
  handle(endpoint: LoginEndpoint, exchange: Exchange): Reply | Promise<Reply>;
}

const ANY_ORIGIN = { "access-control-allow-origin": "*" };
/** `*` does not cover `authorization`, which clients may use at the token endpoint. */
const ANY_HEADERS = "authorization, content-type, mcp-protocol-version, *";

const METHODS: Readonly<Record<LoginEndpoint["kind"], readonly string[]>> = {
  "protected-resource": ["GET", "HEAD"],
  "authorization-server": ["GET", "HEAD"],
  registration: ["POST"],
  authorize: ["GET", "HEAD"],
  token: ["POST"],
  callback: ["GET"],
};

export function createLoginEndpoints(options: LoginEndpointsOptions): LoginEndpoints {
  const { provider, discovery, limit, fetch, logger } = options;

  async function discovered(): Promise<Discovered> {
    try {
      return await discovery.get();
    } catch (error) {
      throw metadataUnavailable(error);
    }
  }

  async function serverMetadata(suffix: string): Promise<Reply> {
    const document = provider.metadata(await discovered(), gatewayEndpoints(options.base, suffix));
    const accepts = options.clientMetadata ? { client_id_metadata_document_supported: true } : {};
    const scopes = options.wantsNoScopes ? { scopes_supported: undefined } : {};
    return jsonReply(200, { ...document, ...accepts, ...scopes, ...options.callback?.metadata }, ANY_ORIGIN);
  }

  async function register(exchange: Exchange): Promise<Reply> {
    const registration = parseRegistration(readBody(exchange, "application/json", "invalid_client_metadata"));
    if (provider.register)
      return jsonReply(201, provider.register(registration), { ...ANY_ORIGIN, "cache-control": "no-store" });
    const metadata = await discovered();
    const url = provider.registrationUrl?.(metadata);
    if (url === undefined)
      throw new GatewayError("not_found", { detail: "the identity provider does not support client registration" });
    // The checked value is serialized again, so that the provider cannot parse the original text differently.
    const body = Buffer.from(JSON.stringify(provider.fitRegistration?.(registration) ?? registration));
    limit.forward("registration", exchange.listener);
    const authorization = provider.takesInitialAccessToken ? exchange.request.headers.get("authorization") : undefined;
    const headers = { "content-type": "application/json", ...(authorization === undefined ? {} : { authorization }) };
    const response = await send(url, headers, body);
    reportFault("client registration", response);
    if (response.status !== 201 && response.status !== 200) return passThrough(response);
    return passThrough({ ...response, body: await completed(response.body, metadata) });
  }

  async function completed(body: Buffer, metadata: Discovered): Promise<Buffer> {
    const { completion } = provider;
    const client = readMembers(REGISTERED_CLIENT, body);
    const request = client && completion?.request(metadata, client);
    if (!completion || !request) return body;
    try {
      const headers = { "content-type": "application/json", authorization: `Bearer ${request.token}` };
      const response = await send(request.url, headers, Buffer.from(JSON.stringify(request.body)), "PUT");
      if (response.status !== 200) throw new Error(`status ${response.status}`);
      return Buffer.from(JSON.stringify(completion.merge(client, readMembers(REGISTERED_CLIENT, response.body) ?? {})));
    } catch (error) {
      logger.warn("client registration could not be completed", {
        url: request.url,
        error: errorDetail(error),
        hint: completion.hint,
      });
      return body;
    }
  }

  async function authorize(login: ProxiedLogin, exchange: Exchange, suffix: string): Promise<Reply> {
    const sent = exchange.request.query;
    const fetching = (): void => {
      limit.enter("registration", exchange);
      limit.forward("registration", exchange.listener);
    };
    const known = (await options.clientMetadata?.authorize(sent, fetching)) ?? { query: sent };
    const asked = options.callback?.authorize(known.query, suffix, known.client) ?? known.query;
    const query = login.rewriteAuthorizeQuery(asked);
    const url = login.authorizeUrl ?? (await findEndpoint("authorization_endpoint"));
    const location = query === "" ? url : `${url}${url.includes("?") ? "&" : "?"}${query}`;
    return emptyReply(302, { location, "cache-control": "no-store" });
  }

  async function redirectToClient(exchange: Exchange): Promise<Reply> {
    const sendsIss = (await discovered()).authorization_response_iss_parameter_supported === true;
    const location = options.callback?.redirectToClient(exchange.request.query, sendsIss) ?? "/";
    return emptyReply(302, { location, "cache-control": "no-store", "referrer-policy": "no-referrer" });
  }

  async function findEndpoint(name: "authorization_endpoint" | "token_endpoint"): Promise<string> {
    const url = (await discovered())[name];
    if (typeof url !== "string") throw metadataUnavailable(invalidProviderResponse(`the metadata has no ${name}`));
    if (name === "token_endpoint" && !mayCall(url, provider.discoveredIssuer))
      throw invalidProviderResponse(`${name} is ${urlLabel(url)}; without TLS it must be at the issuer's own origin`);
    return url;
  }

  async function token(login: ProxiedLogin, exchange: Exchange): Promise<Reply> {
    const type = "application/x-www-form-urlencoded";
    // latin1 preserves all bytes that are not changed.
    const form = readBody(exchange, type, "invalid_request").toString("latin1");
    const { authorization, form: named } = clientCredentials(exchange.request.headers.get("authorization"), form);
    const known = options.clientMetadata?.token(named) ?? named;
    const asked = options.callback?.token(known) ?? known;
    const body = Buffer.from(login.rewriteTokenRequest(asked, authorization !== undefined), "latin1");
    const headers = { "content-type": type, ...(authorization === undefined ? {} : { authorization }) };
    const url = login.tokenUrl ?? (await findEndpoint("token_endpoint"));
    limit.forward("token", exchange.listener);
    const response = await send(url, headers, body);
    reportFault("token request", response);
    return passThrough(response);
  }

  async function send(
    url: string,
    headers: Readonly<Record<string, string>>,
    body: Buffer,
    method = "POST",
  ): Promise<FetchResponse> {
    const limits = { timeoutMs: PROVIDER_TIMEOUT_MS, input: REGISTERED_CLIENT };
    let response: FetchResponse;
    try {
      response = await fetch({
        url,
        method,
        headers: { accept: "application/json", ...headers },
        body,
        ...limits,
      });
    } catch (error) {
      throw providerError(error, url);
    }
    const isRedirect = response.status >= 300 && response.status < 400;
    if (isRedirect)
      throw invalidProviderResponse(`${urlLabel(url)} returned a redirect (${response.status}), which is not followed`);
    return response;
  }

  function reportFault(what: string, response: FetchResponse): void {
    if (response.status < 400) return;
    const text = response.body.toString("utf8");
    const fault = providerFault(text);
    logger.warn(`the identity provider rejected a ${what}`, {
      provider: provider.name,
      status: response.status,
      error: errorMember(text),
      cause: fault?.cause,
      hint: fault?.hint,
    });
  }

  function dispatch(endpoint: LoginEndpoint, exchange: Exchange): Reply | Promise<Reply> {
    const { method } = exchange.request;
    const allowed = METHODS[endpoint.kind];
    if (method === "OPTIONS") return preflight(allowed);
    if (!allowed.includes(method)) {
      throw new GatewayError("method_not_allowed", { headers: { allow: [...allowed, "OPTIONS"].join(", ") } });
    }
    switch (endpoint.kind) {
      case "protected-resource":
        return jsonReply(200, options.resourceDocument, ANY_ORIGIN);
      case "authorization-server":
        return serverMetadata(endpoint.suffix);
      case "registration":
        limit.enter("registration", exchange);
        return register(exchange);
      case "authorize":
        return authorize(requireLogin(provider), exchange, endpoint.suffix);
      case "callback":
        return redirectToClient(exchange);
      case "token":
        limit.enter("token", exchange);
        return token(requireLogin(provider), exchange);
    }
  }

  return {
    handle(endpoint, exchange) {
      try {
        const reply = dispatch(endpoint, exchange);
        return reply instanceof Promise ? reply.catch(asReply) : reply;
      } catch (error) {
        return asReply(error);
      }
    },
  };
}

function asReply(error: unknown): Reply {
  if (error instanceof OAuthRequestError) {
    return jsonReply(
      400,
      { error: error.error, error_description: error.message },
      { ...ANY_ORIGIN, "cache-control": "no-store" },
    );
  }
  if (!(error instanceof GatewayError)) throw error;
  // With CORS headers, browser clients can read the error instead of reporting a network failure.
  const { code, message, detail, headers, cause } = error;
  throw new GatewayError(code, { message, cause, ...(detail && { detail }), headers: { ...ANY_ORIGIN, ...headers } });
}

function preflight(allowed: readonly string[]): Reply {
  return emptyReply(204, {
    ...ANY_ORIGIN,
    "access-control-allow-methods": [...allowed, "OPTIONS"].join(", "),
    "access-control-allow-headers": ANY_HEADERS,
    "access-control-max-age": "86400",
  });
}

/** Forwards only a few headers, so that the provider's cookies and security headers do not reach the client. */
function passThrough(response: FetchResponse): Reply {
  const headers = HeaderList.of(ANY_ORIGIN);
  for (const name of ["content-type", "cache-control", "pragma", "retry-after", "www-authenticate"]) {
    const value = response.headers.get(name);
    if (value !== undefined) headers.add(name, value);
  }
  if (!headers.has("cache-control")) headers.add("cache-control", "no-store");
  return { status: response.status, headers, body: response.body, confidential: true };
}

function readBody(exchange: Exchange, type: string, error: "invalid_request" | "invalid_client_metadata"): Buffer {
  const { body, headers } = exchange.request;
  const sent = headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
  if (sent !== type) throw new OAuthRequestError(error, `the content type must be ${type}`);
  if (body.kind !== "bytes") return Buffer.alloc(0);
  if (body.bytes.length > MAX_LOGIN_BODY_BYTES) throw new GatewayError("body_too_large");
  return body.bytes;
}

/**
 * A client without a secret may send its ID with an empty password, which counts as absent like an empty
 * `client_secret`. Its ID moves to the form, unless the form has one.
 */
function clientCredentials(
  authorization: string | undefined,
  form: string,
): { readonly authorization: string | undefined; readonly form: string } {
  const encoded = /^Basic +([A-Za-z0-9+/]+={0,2})$/i.exec(authorization ?? "")?.[1];
  const [, id] = /^([\w.~%+-]+):$/.exec(Buffer.from(encoded ?? "", "base64").toString("latin1")) ?? [];
  if (id === undefined) return { authorization, form };
  const hasId = parseForm(form).some(({ name }) => name === "client_id");
  return { authorization: undefined, form: hasId ? form : `${form}&client_id=${id}` };
}

function requireLogin(provider: IdentityProvider): ProxiedLogin {
  // These paths exist only for providers with a proxied login (well-known.ts).
  if (!provider.login) throw new Error(`${provider.name} has no proxied login`);
  return provider.login;
}

const MAX_REDIRECT_URIS = 50;

/** These schemes do not open a client application, and some execute code. */
const DANGEROUS_SCHEMES = new Set([
  "about:",
  "blob:",
  "data:",
  "file:",
  "filesystem:",
  "ftp:",
  "javascript:",
  "vbscript:",
  "view-source:",
  "ws:",
  "wss:",
]);

export function parseRegistration(body: Buffer): ClientRegistration & Readonly<Record<string, unknown>> {
  let parsed: unknown;
  try {
    parsed = readJson(REGISTRATION, body);
  } catch (error) {
    const isDeep = error instanceof InputError && error.problem === "depth";
    throw new OAuthRequestError(
      "invalid_client_metadata",
      isDeep ? "the body is nested too deeply" : "the body is not JSON",
    );
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new OAuthRequestError("invalid_client_metadata", "the body is not a JSON object");
  }
  const registration = parsed as ClientRegistration & Record<string, unknown>;
  checkRedirectUris(registration.redirect_uris);
  return registration;
}

function checkRedirectUris(uris: unknown): void {
  if (uris === undefined) return;
  const isList =
    Array.isArray(uris) && uris.length <= MAX_REDIRECT_URIS && uris.every((uri) => typeof uri === "string");
  if (!isList) throw new OAuthRequestError("invalid_redirect_uri", "redirect_uris is not a list of URLs");
  for (const uri of uris as string[]) {
    const problem = redirectUriProblem(uri);
    if (problem) throw new OAuthRequestError("invalid_redirect_uri", `a redirect URI ${problem}`);
  }
}

/** Allows https, http on loopback, and private-use schemes (RFC 8252), without a fragment, wildcard, or credentials. */
function redirectUriProblem(uri: string): string | undefined {
  let url: URL;
  try {
    url = new URL(uri);
  } catch {
    return "is not an absolute URL";
  }
  if (uri.includes("#")) return "has a fragment";
  if (uri.includes("*")) return "has a wildcard";
  if (url.username !== "" || url.password !== "") return "has credentials";
  if (DANGEROUS_SCHEMES.has(url.protocol)) return `has the scheme ${url.protocol}`;
  if (url.protocol === "http:" && !isLoopback(url)) return "uses http on a host that is not loopback";
  return undefined;
}

/** Browsers resolve all names below `localhost` to loopback addresses. */
function isLoopback(url: URL): boolean {
  const host = hostOf(url.host);
  return isLoopbackHost(host) || host.endsWith(".localhost");
}
