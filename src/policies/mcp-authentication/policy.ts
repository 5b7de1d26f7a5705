/**
 * `mcpAuthentication`: implements OAuth for MCP routes. The policy verifies bearer tokens of an external identity
 * provider, and serves the metadata and login endpoints, which need no token.
 */
import { z } from "zod";
import { authenticating, type CompileEnv, definePolicy, type RequestHook } from "../../core/policy.ts";
import { httpUrl, markAddress, secret } from "../../core/schema.ts";
import type { HeaderList } from "../../http/headers.ts";
import { authenticationMode, createBearerAuthentication } from "../../identity/access/bearer-authentication.ts";
import { BEARER_LOCATION } from "../../identity/access/credential-location.ts";
import { plainReader } from "../../identity/access/token-location.ts";
import {
  acquireConfiguredVerifier,
  acquireDiscovery,
  acquireVerifier,
  jwksSetting,
  selectKeySource,
} from "../../identity/keys/key-source.ts";
import { createClientCallback, LOOPBACK } from "../../identity/login/client-callback.ts";
import { type ClientMetadata, createClientMetadata } from "../../identity/login/client-metadata.ts";
import { createLoginEndpoints, MAX_LOGIN_BODY_BYTES } from "../../identity/login/login-endpoints.ts";
import { openLoginLimit } from "../../identity/login/login-limit.ts";
import { loginEndpoints, resourceDocument, resourceMetadataUrl } from "../../identity/login/well-known.ts";
import { createProvider } from "../../identity/providers/create-provider.ts";
import { proxiesPlainLogin } from "../../identity/providers/plain.ts";

const PRODUCTS: readonly (readonly [name: RegExp, key: keyof typeof PROVIDERS])[] = [
  [/^idp_realm$/, "idp_realm"],
  [/^idp_tenant$/, "idp_tenant"],
  [/realm|keycloak|rhbk|red ?hat/i, "keycloak"],
  [/tenant|entra|azure|aad|microsoft/i, "entra"],
  [/auth0/i, "auth0"],
  [/okta/i, "okta"],
  [/authentik/i, "authentik"],
  [/descope/i, "descope"],
];

const noFields = z.strictObject({}).optional();
const discovered = (name: string) =>
  noFields.describe(`${name}. The same as no \`provider\`: standard discovery is enough.`);

const PROVIDERS = {
  idp_realm: noFields.describe("Keycloak (realm provider)."),
  keycloak: noFields.describe("Another name for `idp_realm`."),
  idp_tenant: noFields.describe("Microsoft Entra ID (tenant provider)."),
  entra: noFields.describe("Another name for `idp_tenant`."),
  auth0: discovered("Auth0"),
  okta: discovered("Okta"),
  authentik: discovered("authentik"),
  descope: discovered("Descope"),
};

type Adapter = { idp_realm: object; idp_tenant?: never } | { idp_tenant: object; idp_realm?: never };

/** Returns the adapter by its name in the specification, or undefined for providers that need no adapter. */
function adapterOf(provider: object): Adapter | undefined {
  if ("idp_realm" in provider || "keycloak" in provider) return { idp_realm: {} };
  return "idp_tenant" in provider || "entra" in provider ? { idp_tenant: {} } : undefined;
}

const resourceMetadata = z
  .looseObject({
    resource: httpUrl().describe("The canonical URL of the MCP endpoint, as clients reach it."),
    scopesSupported: z
      .array(z.string().min(1))
      .optional()
      .describe("Scopes that clients should request. `[]`: none; default: what the provider's metadata lists."),
    bearerMethodsSupported: z.array(z.string().min(1)).optional().describe("Where tokens are accepted: `header`."),
    authorizationServers: z
      .array(httpUrl())
      .optional()
      .describe(
        "Overrides the gateway as the authorization server, for strict clients of a provider that sends `iss`.",
      ),
  })
  .describe("The protected resource metadata. Other keys are added in snake_case.");

/** Suggests the right field for common mistakes: a product's name, or the field name without braces. */
function wrongProvider({ code, input, keys }: { code?: string; input?: unknown; keys?: string[] }): string | undefined {
  const isText = code === "invalid_type" && typeof input === "string";
  if (!isText && code !== "unrecognized_keys") return undefined;
  const [name = ""] = isText ? [input] : (keys ?? []);
  const meant = PRODUCTS.find(([product]) => product.test(name))?.[1];
  return `${isText ? "expected an object" : "unknown field"}: ${
    meant === undefined
      ? "write `keycloak: {}` or `entra: {}`, or omit `provider` for other providers"
      : `write \`provider: { ${meant}: {} }\``
  }`;
}

const schema = z
  .strictObject({
    mode: authenticationMode.optional(),
    issuer: markAddress(httpUrl(), { unless: "jwks" }).describe(
      "The issuer of accepted tokens, exactly as in their `iss` claim.",
    ),
    audiences: z
      .array(z.string().min(1))
      .min(1)
      .describe("Accepted audiences. The `aud` claim must contain at least one of them."),
    provider: z
      .strictObject(PROVIDERS, { error: wrongProvider })
      .superRefine((provider, context) => {
        const names = Object.keys(provider).map((name) => `\`${name}\``);
        if (names.length > 1) context.addIssue({ code: "custom", message: `use only one of ${names.join(" and ")}` });
      })
      .transform(adapterOf)
      .optional()
      .describe(
        "The kind of provider; at most one. Default: any provider with RFC 8414 or OpenID Connect discovery, for example Auth0 or Okta.",
      ),
    jwks: jwksSetting.optional(),
    issuers: z
      .array(
        z.strictObject({
          issuer: z
            .string()
            .min(1)
            .describe("The issuer, exactly as in the `iss` claim of its tokens. It does not have to be a URL."),
          jwks: jwksSetting,
          audiences: z
            .array(z.string().min(1))
            .min(1)
            .optional()
            .describe("Accepted audiences. Default: those of the policy."),
        }),
      )
      .optional()
      .describe("Further issuers whose tokens are accepted, each with its own keys. Clients log in at `issuer` only."),
    clientId: z
      .string()
      .min(1)
      .optional()
      .describe(
        "The ID of a client that you created at the provider. All MCP clients use it: the gateway returns it for every registration. Not with `idp_realm`.",
      ),
    clientSecret: secret().optional().describe("The client's secret, if it has one. The gateway adds it."),
    clientMetadataHosts: z
      .array(z.string().regex(/^(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/i, "expected a host name or `*.` and one"))
      .min(1)
      .optional()
      .describe("Accepted hosts of client ID metadata documents. These clients log in as `clientId`."),
    redirectUris: z
      .array(z.union([z.literal(LOOPBACK), httpUrl()]))
      .min(1)
      .optional()
      .describe(
        "The gateway receives the provider's callback at a `.well-known` path of `<resource>` and redirects users to these client addresses; `loopback`: any address on the user's machine. For providers that send `iss` or do not allow arbitrary ports.",
      ),
    jwtValidationOptions: z
      .strictObject({
        requiredClaims: z.array(z.string().min(1)).describe("Required claims besides `exp`."),
      })
      .optional(),
    resourceMetadata,
  })
  .superRefine((config, context) => {
    const problem = (path: string, message: string): void =>
      context.addIssue({ code: "custom", path: [path], message });
    const { provider, clientId, clientSecret, issuer } = config;
    if (provider?.idp_tenant) {
      if (clientId === undefined) problem("clientId", "`idp_tenant` needs the `clientId` of an app registration");
      if (URL.canParse(issuer) && new URL(issuer).pathname.split("/")[1] === "")
        problem("issuer", "its path has no tenant id");
    } else if (provider?.idp_realm) {
      if (clientId !== undefined) problem("clientId", "not with `idp_realm`: clients register themselves there");
      if (clientSecret !== undefined) problem("clientSecret", "not with `idp_realm`");
    } else if (clientSecret !== undefined && clientId === undefined)
      problem("clientSecret", "a secret needs a `clientId`");
    if (config.clientMetadataHosts !== undefined && clientId === undefined)
      problem("clientMetadataHosts", "needs a `clientId`: the client that such clients use at the provider");
    if (config.redirectUris !== undefined && (clientId === undefined || provider !== undefined))
      problem("redirectUris", "needs a `clientId`, and no `provider`");
    if (config.redirectUris?.some((uri) => /[#@]/.test(uri)))
      problem("redirectUris", "an address has a fragment or a user name");
    const names = [issuer, ...(config.issuers ?? []).map(({ issuer: name }) => name)];
    if (new Set(names).size !== names.length) problem("issuers", "an issuer is named twice");
    const { resource } = config.resourceMetadata;
    if (URL.canParse(resource) && new URL(resource).hash !== "")
      problem("resourceMetadata", "`resource` has a fragment");
  });

type Config = z.output<typeof schema>;

export const mcpAuthentication = definePolicy({
  kind: "mcpAuthentication",
  doc: "Requires a bearer token from an identity provider and lets MCP clients log in there.",
  scopes: ["route"],
  role: "security",
  protection: () => "paths",
  sharedState: ({ redirectUris }) => (redirectUris === undefined ? undefined : { what: "logins", isSigned: true }),
  requiresCredential: ({ mode }) => mode === undefined || mode === "strict",
  schema,

  shown(written) {
    const { provider, ...others } = written;
    const isObject = typeof provider === "object" && provider !== null;
    const adapter = isObject ? adapterOf(provider) : undefined;
    return adapter === undefined ? others : { ...others, provider: adapter };
  },

  trustedHosts: ({ resourceMetadata: { resource } }) => [new URL(resource).hostname],

  extraMatches(config) {
    return [...listEndpoints(config)].map(([exact, { isShared }]) => ({ exact, isShared }));
  },

  compile(config, env) {
    const provider = createProvider(config);
    const discovery = acquireDiscovery(provider, env);
    const verifier = acquireVerifier(selectKeySource(config.jwks, provider), discovery, env);
    const { resource } = config.resourceMetadata;
    const requiredClaims = config.jwtValidationOptions?.requiredClaims ?? [];
    const endpoints = listEndpoints(config);
    const clientMetadata = openClientMetadata(config, env);
    const login = createLoginEndpoints({
      base: new URL(resource).origin,
      provider,
      discovery,
      resourceDocument: resourceDocument(config.resourceMetadata),
      wantsNoScopes: config.resourceMetadata.scopesSupported?.length === 0,
      limit: openLoginLimit(env),
      clientMetadata,
      callback: openCallback(config, clientMetadata, env),
      fetch: env.fetch,
      logger: env.logger.for("identity"),
    });
    const challenge = `resource_metadata="${resourceMetadataUrl(resource)}"`;
    const authenticate = createBearerAuthentication({
      kind: "mcpAuthentication",
      mode: config.mode ?? "strict",
      reader: plainReader(BEARER_LOCATION),
      issuers: [
        { verifier, rules: { issuer: config.issuer, audiences: config.audiences, requiredClaims } },
        ...(config.issuers ?? []).map(({ issuer, jwks, audiences = config.audiences }) => ({
          verifier: acquireConfiguredVerifier(jwks, env),
          rules: { issuer, audiences, requiredClaims },
        })),
      ],
      challenge,
      hint: provider.hint,
    });

    const hook: RequestHook = {
      bodyBytes(exchange) {
        const { method, path } = exchange.request;
        const kind = method === "POST" ? endpoints.get(path)?.kind : undefined;
        return kind === "registration" || kind === "token" ? MAX_LOGIN_BODY_BYTES : undefined;
      },
      head(exchange) {
        const endpoint = endpoints.get(exchange.request.path);
        return endpoint ? login.handle(endpoint, exchange) : authenticate.request(exchange);
      },
    };
    return {
      access: authenticating(env, hook, {
        given: authenticate.given,
        recorded(exchange, identity) {
          const endpoint = endpoints.get(exchange.request.path);
          return endpoint ? login.handle(endpoint, exchange) : authenticate.recorded(exchange, identity);
        },
      }),
      clients: { loginPaths: endpoints },
      response: {
        head({ request: { path }, response }) {
          if (response?.source !== "gateway" || response.status !== 401 || endpoints.has(path)) return;
          addChallenge(response.headers, challenge);
        },
      },
    };
  },
});

/** Another policy rejected the request, whose challenge does not name the metadata. Clients read the first one only. */
function addChallenge(headers: HeaderList, challenge: string): void {
  const given = headers.getAll("www-authenticate");
  if (given.some((one) => one.includes(challenge))) return;
  const first = given.find((one) => /^bearer(?: |$)/i.test(one));
  const own = first === undefined || first.length <= "Bearer ".length ? "Bearer" : `${first},`;
  headers.set("www-authenticate", `${own} ${challenge}`);
  for (const other of given) if (other !== first) headers.add("www-authenticate", other);
}

function listEndpoints(config: Config): ReturnType<typeof loginEndpoints> {
  const { provider } = config;
  const isProxied = provider?.idp_tenant !== undefined || (!provider?.idp_realm && proxiesPlainLogin(config));
  return loginEndpoints(config.resourceMetadata.resource, isProxied, config.redirectUris !== undefined);
}

function openClientMetadata({ clientId, clientMetadataHosts: hosts }: Config, env: CompileEnv) {
  if (clientId === undefined || hosts === undefined) return undefined;
  return createClientMetadata({ hosts, clientId, fetch: env.fetch, clock: env.clock });
}

function openCallback(
  { clientId, redirectUris, issuer, resourceMetadata: { resource } }: Config,
  clientMetadata: ClientMetadata | undefined,
  { signingKey: key, clock }: CompileEnv,
) {
  if (clientId === undefined || redirectUris === undefined) return undefined;
  const nowMs = (): number => clock.now();
  const acceptsDocument = clientMetadata?.accepts;
  return createClientCallback({ clientId, redirectUris, issuer, resource, key, acceptsDocument, nowMs });
}
