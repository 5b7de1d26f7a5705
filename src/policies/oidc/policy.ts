/**
 * `oidc`: signs users in with their browser at an OpenID provider. Rules read the ID token's claims as `jwt.*`.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import type { Owner } from "../../base/owner.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { authenticating, definePolicy } from "../../core/policy.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import { emptyReply, jsonReply, type Reply, textReply } from "../../core/reply.ts";
import { duration, httpUrl, secret, serverUrl } from "../../core/schema.ts";
import { canonicalPath } from "../../http/request-path.ts";
import { acquireDiscovery, acquireVerifier, jwksSetting, selectKeySource } from "../../identity/keys/key-source.ts";
import { BrowserCookie, foreignOrigin } from "../../identity/login/browser-flow.ts";
import { type BrowserSession, createBrowserLogin, createBrowserSessions } from "../../identity/login/browser-login.ts";
import { type Discovery, mayCall } from "../../identity/providers/discovery.ts";
import { plain } from "../../identity/providers/plain.ts";
import { StoreUnavailable } from "../../store/store.ts";

const DEFAULT_SESSION_MS = 8 * 3_600_000;
const MAX_SESSION_MS = 30 * 86_400_000;
const SAFE_METHODS: readonly string[] = ["GET", "HEAD", "OPTIONS"];

const ENDPOINTS = ["authorizationEndpoint", "tokenEndpoint", "jwks"] as const;

const schema = z
  .strictObject({
    issuer: serverUrl().describe("The provider's issuer, exactly as in its metadata and its ID tokens."),
    clientId: z.string().min(1).describe("The client ID of this gateway at the provider."),
    clientSecret: secret().optional().describe("The client secret. Omit it for a public client. PKCE is always used."),
    clientAuth: z
      .enum(["basic", "post"])
      .optional()
      .describe("How the secret is sent. Default: `post` if the provider's metadata lists it, otherwise `basic`."),
    redirectUri: httpUrl()
      .refine(
        (text) => !URL.canParse(text) || new URL(text).pathname !== "/",
        "the path must not be `/`: the policy itself handles it",
      )
      .refine((text) => !/[?#]/.test(text), "expected a URL without query and fragment")
      .describe(
        "The URL that the provider redirects browsers to, registered there; the gateway handles its path. Its host is the name by which browsers reach the gateway.",
      ),
    logoutPath: z
      .string()
      .regex(/^\/[A-Za-z0-9._~/-]+$/, "expected a path")
      .optional()
      .describe(
        "A POST request to this path signs the user out. Default: the path of `redirectUri` with `logout` as its last segment.",
      ),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, "not a scope"))
      .refine((scopes) => scopes.includes("openid"), "`openid` is required")
      .optional()
      .describe("Default: openid, profile, email."),
    sessionTimeout: duration()
      .refine((ms) => ms >= 60_000 && ms <= MAX_SESSION_MS, "expected 1m to 30d")
      .optional()
      .describe("When a user must sign in again, 1m to 30d. Default: 8h."),
    authorizationEndpoint: httpUrl()
      .optional()
      .describe(
        "The provider's login page, for a provider without metadata. Set it together with `tokenEndpoint` and `jwks`.",
      ),
    tokenEndpoint: serverUrl().optional().describe("The provider's token endpoint, for a provider without metadata."),
    jwks: jwksSetting
      .optional()
      .describe("The provider's keys, for a provider without metadata: a URL, a file, or the key set."),
  })
  .superRefine((config, context) => {
    const missing = ENDPOINTS.filter((name) => config[name] === undefined);
    if (missing.length > 0 && missing.length < ENDPOINTS.length)
      context.addIssue({
        code: "custom",
        path: [missing[0] ?? ""],
        message: "`authorizationEndpoint`, `tokenEndpoint` and `jwks` must be set together",
      });
    if (config.tokenEndpoint !== undefined && URL.canParse(config.tokenEndpoint) && URL.canParse(config.issuer))
      if (!mayCall(config.tokenEndpoint, config.issuer))
        context.addIssue({
          code: "custom",
          path: ["tokenEndpoint"],
          message: "expected an https URL, because the client secret is sent to it",
        });
  });

type OidcConfig = z.output<typeof schema>;

/** Returns undefined if the provider's metadata contains the endpoints. */
function configuredEndpoints(config: OidcConfig): Discovery | undefined {
  const { issuer, authorizationEndpoint, tokenEndpoint } = config;
  if (authorizationEndpoint === undefined || tokenEndpoint === undefined) return undefined;
  const metadata = { issuer, authorization_endpoint: authorizationEndpoint, token_endpoint: tokenEndpoint };
  return { get: () => Promise.resolve(metadata) };
}

export const oidc = definePolicy({
  kind: "oidc",
  doc: "Signs users in with their browser at an OpenID provider.",
  scopes: ["gateway", "route"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  sharedState: () => ({ what: "sign-ins and sessions" }),
  schema,
  trustedHosts: ({ redirectUri }) => [new URL(redirectUri).hostname],
  extraMatches: (config) => [{ exact: getCallbackPath(config) }, { exact: getLogoutPath(config) }],

  compile(config, env) {
    const { issuer, clientId, redirectUri } = config;
    const { origin } = new URL(redirectUri);
    const callbackPath = getCallbackPath(config);
    const logoutPath = getLogoutPath(config);
    const lifetimeMs = config.sessionTimeout ?? DEFAULT_SESSION_MS;
    const realm = realmOf(config, env.owner);
    const cookie = new BrowserCookie(`session_${realm}`, redirectUri);
    const provider = plain({ issuer });
    const discovery = configuredEndpoints(config) ?? acquireDiscovery(provider, env);
    const sessions = createBrowserSessions(env.store, env.clock, realm);
    const logger = env.logger.for("identity");
    const login = createBrowserLogin({
      issuer,
      clientId,
      clientSecret: config.clientSecret,
      clientAuth: config.clientAuth,
      redirectUri,
      scopes: config.scopes ?? ["openid", "profile", "email"],
      realm,
      discovery,
      verifier: acquireVerifier(selectKeySource(config.jwks, provider), discovery, env),
      signingKey: env.signingKey,
      store: env.store,
      fetch: env.fetch,
      clock: env.clock,
    });

    async function request(exchange: Exchange): Promise<Reply | undefined> {
      const incoming = exchange.request;
      const { path, method } = incoming;
      try {
        if (path === callbackPath) return await callback(incoming);
        const ids = cookie.read(incoming.headers);
        if (path === logoutPath) return await logout(incoming, ids);
        const session = await findSession(ids);
        if (session === undefined) return await withoutSession(incoming, ids.length > 0);
        if (!SAFE_METHODS.includes(method) || incoming.headers.has("upgrade")) requireSameOrigin(incoming);
        return admit(exchange, session);
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        throw new GatewayError("not_ready", { message: "sign-ins are not available now", detail: error.message });
      }
    }

    async function findSession(ids: readonly string[]): Promise<BrowserSession | undefined> {
      for (const id of ids) {
        const session = await sessions.find(id);
        if (session !== undefined) return session;
      }
      return undefined;
    }

    function admit(exchange: Exchange, { claims, principal }: BrowserSession): undefined {
      exchange.attributes.jwt = claims;
      exchange.identity.browserSession = { origin, logoutPath };
      exchange.authenticated(principal);
      return undefined;
    }

    async function callback(request: GatewayRequest): Promise<Reply> {
      if (request.method !== "GET") return textReply(405, "method not allowed; use GET\n", { allow: "GET" });
      const { claims, principal, returnTo, clearing } = await login.finish(request);
      for (const oldId of cookie.read(request.headers)) await sessions.end(oldId);
      const id = await sessions.open({ claims, principal }, lifetimeMs);
      logger.info("user signed in", { subject: String(claims.sub), owner: env.scopeName });
      const reply = emptyReply(302, { location: returnTo, "cache-control": "no-store" });
      reply.headers.add("set-cookie", cookie.line(id, Math.floor(lifetimeMs / 1000)));
      reply.headers.add("set-cookie", clearing);
      return { ...reply, confidential: true };
    }

    async function logout(request: GatewayRequest, ids: readonly string[]): Promise<Reply> {
      if (request.method !== "POST") return textReply(405, "method not allowed; use POST\n", { allow: "POST" });
      requireSameOrigin(request);
      for (const id of ids) await sessions.end(id);
      const location = (await login.endSessionUrl()) ?? null;
      const headers = { "set-cookie": cookie.clearing(), "cache-control": "no-store" };
      return isNavigation(request) && location !== null
        ? emptyReply(303, { ...headers, location })
        : jsonReply(200, { signedOut: true, location }, headers);
    }

    async function withoutSession(request: GatewayRequest, hadSession: boolean): Promise<Reply> {
      if ((request.method === "GET" || request.method === "HEAD") && isNavigation(request)) return login.begin(request);
      throw new GatewayError("authentication_failed", {
        message: hadSession ? "the session has ended; sign in again\n" : `sign in with a browser at ${origin}\n`,
        detail: hadSession ? "the session is unknown or has ended" : "there is no session cookie",
      });
    }

    /** This check prevents CSRF, because browsers may add the session cookie to requests from any page. */
    function requireSameOrigin(request: GatewayRequest): void {
      const detail = foreignOrigin(request, origin);
      if (detail === undefined) return;
      throw new GatewayError("origin_denied", {
        message: `requests that change something must come from a page of ${origin}\n`,
        detail,
      });
    }

    return {
      access: authenticating(
        env,
        { head: request },
        {
          given(exchange, given) {
            if (!("claims" in given)) return exchange.skip("a session is needed, not a token");
            return admit(exchange, { claims: given.claims, principal: tokenPrincipal(given.claims, "") });
          },
          recorded(exchange, { claims }) {
            if (claims === undefined)
              throw new GatewayError("authentication_failed", { detail: "no user was signed in" });
            return admit(exchange, { claims, principal: tokenPrincipal(claims, "") });
          },
        },
      ),
    };
  },
});

/**
 * Names the sessions that the policy accepts. Policies of one standalone configuration share the sessions of a client;
 * their realm must not change, because stores contain it. A document accepts only its own sessions, because another
 * tenant can write a policy with equal values but other keys.
 */
function realmOf(config: OidcConfig, owner: Owner): string {
  const { issuer, clientId, redirectUri, authorizationEndpoint, tokenEndpoint, jwks } = config;
  const digest = (fields: readonly unknown[]): string =>
    createHash("sha256").update(JSON.stringify(fields)).digest("hex");
  if (owner.isStandalone) return digest([issuer, clientId, redirectUri]).slice(0, 8);
  const fields = [owner.prefix, issuer, clientId, redirectUri, authorizationEndpoint, tokenEndpoint, jwks];
  return digest(fields).slice(0, 32);
}

function getCallbackPath({ redirectUri }: OidcConfig): string {
  return canonicalPath(new URL(redirectUri).pathname);
}

function getLogoutPath({ logoutPath, redirectUri }: OidcConfig): string {
  return canonicalPath(logoutPath ?? new URL("logout", redirectUri).pathname);
}

/** Only a navigation is redirected to the provider, because a fetch could not show the sign-in page. */
function isNavigation({ headers }: GatewayRequest): boolean {
  // Browsers send these headers only to HTTPS and loopback origins.
  if (headers.has("sec-fetch-site"))
    return headers.get("sec-fetch-mode") === "navigate" && headers.get("sec-fetch-dest") !== "iframe";
  return /\btext\/html\b/.test(headers.get("accept") ?? "");
}
