/**
 * Relays the login of a remote server behind a route without authentication, where clients log in themselves. The
 * metadata documents contain the gateway's address, because clients compare URLs with the one that they called.
 */

import { newForm } from "../base/form.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { BackendEnv, ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import type { ExtraMatch } from "../core/policy.ts";
import { publicOrigin } from "../core/public-origin.ts";
import { emptyReply, jsonReply, type Reply } from "../core/reply.ts";
import { ResponseFilter } from "../core/response-filter.ts";
import type { Fetch } from "../http/fetch.ts";
import type { HeaderList } from "../http/headers.ts";
import { type LoginLimit, openLoginLimit } from "../identity/login/login-limit.ts";
import { type LoginEndpoint, loginEndpoints, resourceMetadataUrl } from "../identity/login/well-known.ts";
import { parseForm, requireUnique, serializeForm } from "../identity/providers/oauth-form.ts";
import { OAuthRequestError } from "../identity/providers/provider.ts";
import { readMembers } from "../json/read-json.ts";
import { RequestRejection, readBody } from "./client-side/http-request.ts";
import { discoverLogin, endpointPlace, type LoginDocuments, learningFetch } from "./logins/oauth-client.ts";
import { placeName } from "./logins/vault.ts";
import type { McpConfig } from "./server-side/target-config.ts";

const RESPONSE = peerInput("mcp-server/login-token");

const DOCUMENTS_MS = 600_000;
const FAILURE_MS = 10_000;
const TOKEN_MS = 15_000;
const LOGIN_FORM = peerInput("client/login-form");
const FORM = "application/x-www-form-urlencoded";
/** The documents are public, clients may run in browsers, and the content depends on the address of the request. */
const ANY_ORIGIN = { "access-control-allow-origin": "*", "cache-control": "no-store" };
/**
 * Lists the members of a token response (RFC 6749 section 5). Others are removed, in case the endpoint is not a token
 * endpoint.
 */
const TOKEN_MEMBERS = [
  ...["access_token", "token_type", "expires_in", "refresh_token", "scope", "id_token"],
  ...["error", "error_description", "error_uri"],
];
/**
 * These members refer to the authorization server's address, sign values that the relay changes, or name other token
 * endpoints.
 */
const NOT_PASSED_ON = ["signed_metadata", "authorization_response_iss_parameter_supported", "mtls_endpoint_aliases"];
/** Clients send credentials and tokens to other endpoints too, so those must be at one of the bound origins. */
const BOUND = ["authorization_endpoint", "token_endpoint", "revocation_endpoint", "registration_endpoint"];

interface RelayedServer {
  readonly name: string;
  readonly url: string;
}

function relayedServer({ targets }: McpConfig): RelayedServer | undefined {
  const [target] = targets;
  if (targets.length !== 1 || target?.mcp === undefined || target.mcp.oauth !== undefined) return undefined;
  const { forwardHeaders, headers, url } = target.mcp;
  return forwardHeaders.includes("authorization") && !Object.hasOwn(headers, "authorization")
    ? { name: target.name, url }
    : undefined;
}

export function relayPaths(config: McpConfig, paths: readonly string[]): readonly ExtraMatch[] {
  if (relayedServer(config) === undefined) return [];
  return [...relayEndpoints(pathSuffixes(paths))].map(([exact, { isShared }]) => ({ exact, isShared }));
}

export function loginRelay(config: McpConfig, env: BackendEnv): LoginRelay | undefined {
  const server = env.readsCredential === false ? relayedServer(config) : undefined;
  if (server === undefined) return undefined;
  return new LoginRelay(server, openLoginLimit(env), env);
}

export class LoginRelay {
  readonly #serverUrl: string;
  readonly #targetName: string;
  readonly #env: BackendEnv;
  readonly #fetch: Fetch;
  readonly #limit: LoginLimit;
  readonly #suffixes: readonly string[];
  readonly #endpoints: ReadonlyMap<string, LoginEndpoint>;
  #documents: { readonly found: Promise<LoginDocuments>; untilMs: number } | undefined = undefined;

  constructor({ name, url }: RelayedServer, limit: LoginLimit, env: BackendEnv) {
    this.#serverUrl = url;
    this.#targetName = name;
    this.#fetch = learningFetch(url, env.fetch);
    this.#env = env;
    this.#limit = limit;
    this.#suffixes = pathSuffixes(env.matchedPrefixes);
    this.#endpoints = relayEndpoints(this.#suffixes);
  }

  answer(exchange: Exchange): Promise<Reply> | undefined {
    const endpoint = this.#endpoints.get(exchange.originalPath);
    return endpoint && this.#answer(endpoint, exchange);
  }

  /** Changes a server's challenge to refer to the gateway's metadata document. */
  challenge(text: string, exchange: Exchange): string {
    const path = exchange.originalPath;
    const suffix = this.#suffixes.find((one) => path === one || path.startsWith(`${one}/`)) ?? "";
    const own = `resource_metadata="${resourceMetadataUrl(`${publicOrigin(exchange)}${suffix}`)}"`;
    const named = /\bresource_metadata\s*=\s*(?:"[^"]*"|[^\s,]*)/gi;
    if (named.test(text)) return text.replace(named, own);
    return /^bearer\s*$/i.test(text) ? `Bearer ${own}` : `${text}, ${own}`;
  }

  async #answer({ kind, suffix }: LoginEndpoint, exchange: Exchange): Promise<Reply> {
    const { method } = exchange.request;
    const allowed = kind === "token" ? "POST" : "GET";
    if (method === "OPTIONS") return preflight(allowed);
    if (method !== allowed && !(method === "HEAD" && allowed === "GET"))
      throw new GatewayError("method_not_allowed", { headers: { allow: `${allowed}, OPTIONS`, ...ANY_ORIGIN } });
    const documents = await this.#discovered(exchange.listener);
    const resource = `${publicOrigin(exchange)}${suffix}`;
    switch (kind) {
      case "protected-resource":
        return jsonReply(200, resourceDocument(documents, resource), ANY_ORIGIN);
      case "authorize":
        return authorize(documents, exchange);
      case "token":
        this.#limit.enter("token", exchange);
        return this.#token(documents, exchange);
      default:
        return jsonReply(200, serverDocument(documents, resource), ANY_ORIGIN);
    }
  }

  async #token({ server }: LoginDocuments, exchange: Exchange): Promise<Reply> {
    const { headers } = exchange.request;
    if (headers.get("content-type")?.split(";", 1)[0]?.trim().toLowerCase() !== FORM)
      return refused(new OAuthRequestError("invalid_request", `the content type must be ${FORM}`));
    let form: string;
    try {
      form = withResource(await readBody(exchange, LOGIN_FORM), server.resource);
    } catch (error) {
      return refused(error);
    }
    this.#limit.forward("token", exchange.listener);
    const authorization = headers.get("authorization");
    const answer = await this.#fetch({
      url: server.tokenEndpoint,
      method: "POST",
      headers: { "content-type": FORM, accept: "application/json", ...(authorization && { authorization }) },
      body: Buffer.from(form),
      timeoutMs: TOKEN_MS,
      input: RESPONSE,
    }).catch((error: unknown) => {
      throw unavailable(error);
    });
    const value = readMembers(RESPONSE, answer.body);
    if (value === undefined || (answer.status >= 300 && answer.status < 400))
      throw unavailable(new Error(`the token endpoint answered with status ${answer.status}`));
    const body = Object.fromEntries(TOKEN_MEMBERS.flatMap((name) => (name in value ? [[name, value[name]]] : [])));
    return { ...jsonReply(answer.status, body, ANY_ORIGIN), confidential: true };
  }

  /**
   * Clients cannot notice that the server names another authorization server, because the relay has one issuer for them.
   * Therefore, the first one is stored, and codes and refresh tokens of clients are sent to no other.
   */
  async #load(): Promise<LoginDocuments> {
    const documents = await discoverLogin(this.#serverUrl, {}, this.#fetch);
    const { issuer, authorizationEndpoint, tokenEndpoint, registrationEndpoint = issuer } = documents.server;
    const { revocationEndpoint = tokenEndpoint } = documents.server;
    const endpoints = [authorizationEndpoint, tokenEndpoint, revocationEndpoint, registrationEndpoint];
    const named = JSON.stringify([issuer, ...endpoints.map((one) => endpointPlace(issuer, one))]);
    const store = this.#env.store.at("mcp-login-relays");
    const place = placeName(this.#env.name, this.#targetName, this.#serverUrl);
    if (await store.replace(place, undefined, named)) return documents;
    const first = await store.get(place);
    if (first === named) return documents;
    throw new Error(
      `names another authorization server (${named}) than at first (${first}): rename the target to accept it`,
    );
  }

  #discovered(listener: string): Promise<LoginDocuments> {
    const nowMs = this.#env.clock.monotonicMs();
    if (this.#documents && this.#documents.untilMs > nowMs) return this.#documents.found;
    this.#limit.forward("discovery", listener);
    const found = this.#load().catch((error: unknown) => {
      held.untilMs = this.#env.clock.monotonicMs() + FAILURE_MS;
      this.#env.logger.for("mcp").warn("MCP server's login could not be found", { reason: errorReason(error) });
      throw unavailable(error);
    });
    const held = { found, untilMs: nowMs + DOCUMENTS_MS };
    this.#documents = held;
    return found;
  }
}

function pathSuffixes(paths: readonly string[]): readonly string[] {
  const own = paths.filter((path) => !path.includes("/.well-known/") && path !== "/sse");
  return [...new Set(own.map((path) => path.replace(/\/+$/, "")))].sort((a, b) => b.length - a.length);
}

function relayEndpoints(suffixes: readonly string[]): ReadonlyMap<string, LoginEndpoint> {
  const all = new Map<string, LoginEndpoint>();
  // Clients register directly at the authorization server.
  for (const suffix of suffixes)
    for (const [path, endpoint] of loginEndpoints(`http://gateway${suffix}`, true))
      if (endpoint.kind !== "registration" && (!all.has(path) || !endpoint.isShared)) all.set(path, endpoint);
  return all;
}

function resourceDocument({ resourceMetadata }: LoginDocuments, resource: string): object {
  return { ...without(resourceMetadata ?? {}), resource, authorization_servers: [resource] };
}

function serverDocument({ server, serverMetadata }: LoginDocuments, issuer: string): object {
  const { origin, pathname } = new URL(issuer);
  const own = `${origin}/.well-known/oauth-authorization-server${pathname === "/" ? "" : pathname}`;
  return {
    ...without(serverMetadata, (name, value) => isUnbound(server, name, value)),
    issuer,
    authorization_endpoint: `${own}/authorize`,
    token_endpoint: `${own}/token`,
  };
}

function without(
  document: Readonly<Record<string, unknown>>,
  isRemoved?: (name: string, value: unknown) => boolean,
): object {
  return Object.fromEntries(
    Object.entries(document).filter(
      ([name, value]) => !NOT_PASSED_ON.includes(name) && isRemoved?.(name, value) !== true,
    ),
  );
}

function isUnbound({ issuer, tokenEndpoint }: LoginDocuments["server"], name: string, value: unknown): boolean {
  if (!name.endsWith("_endpoint") || BOUND.includes(name)) return false;
  const origin = typeof value === "string" && URL.canParse(value) ? new URL(value).origin : undefined;
  return origin !== new URL(issuer).origin && origin !== new URL(tokenEndpoint).origin;
}

function authorize({ server }: LoginDocuments, exchange: Exchange): Reply {
  let query: string;
  try {
    query = withResource(exchange.originalQuery.replace(/^\?/, ""), server.resource);
  } catch (error) {
    return refused(error);
  }
  const { authorizationEndpoint: address } = server;
  const location = `${address}${address.includes("?") ? "&" : "?"}${query}`;
  return emptyReply(302, { location, "cache-control": "no-store", "referrer-policy": "no-referrer" });
}

/** Replaces `resource`, if the form has it, with the server's resource. Throws if another parameter is repeated. */
function withResource(form: string, resource: string): string {
  const pairs = parseForm(form);
  const others = pairs.filter(({ name }) => name.toLowerCase() !== "resource");
  requireUnique(others);
  if (others.length === pairs.length) return serializeForm(others);
  return serializeForm([...others, ...parseForm(newForm({ resource }).toString())]);
}

function preflight(allowed: string): Reply {
  return emptyReply(204, {
    ...ANY_ORIGIN,
    "access-control-allow-methods": `${allowed}, OPTIONS`,
    "access-control-allow-headers": "authorization, content-type, mcp-protocol-version, *",
  });
}

function refused(error: unknown): Reply {
  if (error instanceof RequestRejection && error.reply.status === 413)
    throw new GatewayError("body_too_large", { headers: ANY_ORIGIN });
  if (!(error instanceof OAuthRequestError)) throw error;
  return jsonReply(400, { error: error.error, error_description: error.message }, ANY_ORIGIN);
}

function unavailable(error: unknown): GatewayError {
  return new GatewayError("not_ready", {
    message: "the server's login is not available",
    detail: errorReason(error),
    headers: { "retry-after": "10", ...ANY_ORIGIN },
  });
}

function errorReason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export class RelayedCall extends ResponseFilter {
  readonly #challenge: (text: string) => string;

  constructor(call: ResponseReceiver, challenge: (text: string) => string) {
    super(call);
    this.#challenge = challenge;
  }

  head(status: number, headers: HeaderList): void {
    const text = headers.get("www-authenticate");
    if (text !== undefined) headers.set("www-authenticate", this.#challenge(text));
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    this.call.end(trailers);
  }

  fail(error: unknown): void {
    this.call.fail(error);
  }
}
