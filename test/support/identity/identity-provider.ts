/**
 * Test versions of both kinds of identity provider, based on an OpenID provider library: the realm (registration,
 * `iss` in the callback, no resource indicators) and the tenant (no registration, rejects `resource`, no `iss`). The
 * user is always alice, who always consents. Both can rotate keys and become unavailable.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type OidcContext, Provider } from "oidc-provider";
import { bodyFor, withIssFor } from "./provider-messages.ts";
import { withRoles } from "./role-claims.ts";
import { createSigningKey, type SigningKey } from "./tokens.ts";

export interface IdentityProviderStandIn {
  readonly issuer: string;
  /** Method and path of every request so far. */
  readonly requests: string[];
  readonly tokenBodies: string[];
  /** New keys only, from now on. */
  rotateKeys(): void;
  close(): Promise<void>;
}

export interface RealmOptions {
  /** RFC 9207: the real one does, unless the client's issuer is excluded from the response. */
  readonly sendsIss?: boolean;
  /** Whether a client may switch that off for itself; older versions and strict realms refuse. */
  readonly allowsExclusion?: boolean;
  /** What its tokens have as `aud`; the real one issues only `account` until a mapper is added. */
  readonly audience?: string;
  /** Answers registrations as a realm does whose policies refuse them, in these words. */
  readonly refusal?: string;
  /** As the real one does; the library leaves them out. */
  readonly refusesUnknownScopes?: boolean;
  /** One that the operator made; what is added to its addresses counts with the next keys. */
  readonly client?: { readonly client_id: string; readonly redirect_uris: string[] };
  readonly accessTokenSeconds?: number;
}

export const TRUSTED_HOSTS_REFUSAL =
  "Policy 'Trusted Hosts' rejected request to client-registration service. Details: Host not trusted.";

export interface TenantOptions {
  readonly clientId: string;
  /** A confidential app registration. */
  readonly clientSecret?: string;
  readonly redirectUri: string | readonly string[];
  readonly accessTokenSeconds?: number;
  /** What the ID token says as `roles`, asked for at each sign-in. */
  readonly roles?: () => readonly string[];
}

/** Its keys are made in a millisecond, those of RSA in up to a second; tests of tokens have every algorithm. */
const ALGORITHM = "ES256";
/** An absolute URI is required; the tokens carry the audience instead. */
const RESOURCE = "urn:stand-in:resource";
const SCOPES = "openid offline_access tools";

interface Shape {
  readonly prefix: string;
  readonly issuerPath: string;
  readonly configuration: object;
  /** Whether the callback to this client carries `iss`. */
  sendsIss(clientId: string): boolean;
  /** Answers instead of the library, or returns the path to hand to it. */
  intercept(request: IncomingMessage, response: ServerResponse, url: URL, body: string): string | undefined;
}

export function openRealm(options: RealmOptions = {}): Promise<IdentityProviderStandIn> {
  const path = "/protocol/openid-connect";
  const excluded = new Set<string>();
  return open({
    prefix: "/realms/mcp",
    issuerPath: "/realms/mcp",
    sendsIss: (clientId) => (options.sendsIss ?? true) && !excluded.has(clientId),
    configuration: configuration(options.audience ?? "gateway", options.accessTokenSeconds, {
      features: { registration: { enabled: true, initialAccessToken: false } },
      ...(options.client ? { clients: [{ ...options.client, token_endpoint_auth_method: "none" }] } : {}),
      routes: {
        authorization: `${path}/auth`,
        token: `${path}/token`,
        jwks: `${path}/certs`,
        registration: "/clients-registrations/openid-connect",
      },
      extraTokenClaims: () => ({ realm_access: { roles: ["admin"] } }),
    }),
    intercept(request, response, url, body) {
      if (options.refusal !== undefined && url.pathname === "/clients-registrations/openid-connect") {
        answer(response, 403, { error: "insufficient_scope", error_description: options.refusal });
        return undefined;
      }
      const asked = url.searchParams.get("scope")?.split(" ") ?? [];
      if (options.refusesUnknownScopes && asked.some((scope) => !SCOPES.split(" ").includes(scope))) {
        const location = new URL(url.searchParams.get("redirect_uri") ?? "");
        location.searchParams.set("error", "invalid_scope");
        response.writeHead(302, { location: location.href }).end();
        return undefined;
      }
      const [, clientId] = /^\/clients-registrations\/default\/(.+)$/.exec(url.pathname) ?? [];
      if (clientId !== undefined) {
        if (!options.allowsExclusion) answer(response, 403, { error: "insufficient_scope" });
        else {
          const { attributes } = JSON.parse(body) as { attributes?: Record<string, string> };
          if (!request.headers.authorization?.startsWith("Bearer ")) throw new Error("no registration access token");
          if (attributes?.["exclude.issuer.from.auth.response"] !== "true") throw new Error("nothing to exclude");
          excluded.add(clientId);
          answer(response, 200, { clientId, registrationAccessToken: "renewed" });
        }
        return undefined;
      }
      // Resource indicators are not supported: the parameter is ignored.
      url.searchParams.delete("resource");
      return request.method === "GET" ? url.pathname + url.search : url.pathname;
    },
  });
}

export const TENANT_ID = "11111111-2222-3333-4444-555555555555";

export function openTenant(options: TenantOptions): Promise<IdentityProviderStandIn> {
  const { clientId, clientSecret, redirectUri } = options;
  return open({
    prefix: `/${TENANT_ID}`,
    issuerPath: `/${TENANT_ID}/v2.0`,
    sendsIss: () => false,
    configuration: configuration(clientId, options.accessTokenSeconds, {
      clients: [
        {
          client_id: clientId,
          ...(clientSecret === undefined ? {} : { client_secret: clientSecret }),
          token_endpoint_auth_method: clientSecret === undefined ? "none" : "client_secret_post",
          redirect_uris: [redirectUri].flat(),
          grant_types: ["authorization_code", "refresh_token"],
          application_type: "native",
        },
      ],
      routes: { authorization: "/oauth2/v2.0/authorize", token: "/oauth2/v2.0/token", jwks: "/discovery/v2.0/keys" },
      discovery: {
        code_challenge_methods_supported: undefined,
        authorization_response_iss_parameter_supported: undefined,
      },
      extraTokenClaims: () => ({ roles: ["admin"] }),
      ...(options.roles === undefined ? {} : withRoles(options.roles)),
    }),
    intercept(_request, response, url, body) {
      if (url.searchParams.has("resource") || new URLSearchParams(body).has("resource")) {
        const text =
          "AADSTS9010010: The resource parameter provided in the request doesn't match with the requested scopes.";
        answer(response, 400, { error: "invalid_target", error_description: text });
        return undefined;
      }
      if (url.pathname === "/v2.0/.well-known/openid-configuration") return "/.well-known/openid-configuration";
      return url.pathname + url.search;
    },
  });
}

function configuration(
  audience: string,
  accessTokenSeconds = 300,
  extra: Record<string, unknown> = {},
): Record<string, unknown> {
  const { features = {}, ...rest } = extra;
  return {
    scopes: SCOPES.split(" "),
    pkce: { required: () => true },
    clientDefaults: {
      grant_types: ["authorization_code", "refresh_token"],
      application_type: "native",
      id_token_signed_response_alg: ALGORITHM,
    },
    ttl: {
      AccessToken: accessTokenSeconds,
      Grant: 3600,
      Session: 3600,
      Interaction: 600,
      AuthorizationCode: 60,
      RefreshToken: 3600,
    },
    issueRefreshToken: async () => true,
    findAccount: async (_context: unknown, accountId: string) => ({
      accountId,
      claims: async () => ({ sub: accountId }),
    }),
    interactions: { url: (_context: unknown, interaction: { uid: string }) => `interaction/${interaction.uid}` },
    cookies: { keys: ["stand-in"] },
    async loadExistingGrant({ oidc }: OidcContext) {
      const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope(SCOPES);
      grant.addResourceScope(RESOURCE, SCOPES);
      await grant.save();
      return grant;
    },
    features: {
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: async () => RESOURCE,
        useGrantedResource: async () => true,
        getResourceServerInfo: async () => ({
          audience,
          scope: SCOPES,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: ALGORITHM } },
        }),
      },
      ...(features as object),
    },
    ...rest,
  };
}

async function open(shape: Shape): Promise<IdentityProviderStandIn> {
  const requests: string[] = [];
  const tokenBodies: string[] = [];
  let generation = 0;
  let atLogin = "";
  let handle: ((request: IncomingMessage, response: ServerResponse) => Promise<void>) | undefined;
  let provider: Provider | undefined;

  const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    void serve(request, response).catch((error: unknown) => {
      if (!response.headersSent) answer(response, 500, { error: "server_error", error_description: String(error) });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  function start(): void {
    generation += 1;
    const jwks = { keys: [privateJwk(createSigningKey(ALGORITHM, `key-${generation}`))] };
    provider = new Provider(`${origin}${shape.issuerPath}`, { ...shape.configuration, jwks });
    handle = provider.callback();
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", origin);
    requests.push(`${request.method} ${url.pathname}`);
    if (!url.pathname.startsWith(shape.prefix)) return answer(response, 404, { error: "not_found" });
    url.pathname = url.pathname.slice(shape.prefix.length);
    // The answer comes some redirects later, and one client at a time logs in.
    atLogin = url.searchParams.get("client_id") ?? atLogin;
    if (url.pathname.includes("/interaction/")) return finishInteraction(request, response);
    const body = request.method === "POST" || request.method === "PUT" ? await readText(request) : "";
    if (url.pathname.endsWith("/token")) tokenBodies.push(body);
    const path = shape.intercept(request, response, url, body);
    if (path === undefined) return;
    request.url = path;
    // The library finds out by it under which path it is mounted.
    Object.assign(request, { originalUrl: `${shape.prefix}${path}`, body: bodyFor(request, body) });
    withIssFor(response, () => shape.sendsIss(atLogin));
    await handle?.(request, response);
  }

  async function finishInteraction(request: IncomingMessage, response: ServerResponse): Promise<void> {
    await provider?.interactionFinished(request, response, { login: { accountId: "alice" }, consent: {} });
  }

  start();
  const issuer = `${origin}${shape.issuerPath}`;
  return { issuer, requests, tokenBodies, rotateKeys: start, close: () => close(server) };
}

function privateJwk(key: SigningKey): object {
  return { ...key.privateKey.export({ format: "jwk" }), kid: key.kid, use: "sig", alg: ALGORITHM };
}

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

function close(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
