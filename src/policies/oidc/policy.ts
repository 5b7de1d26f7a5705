/**
 * `oidc`: people sign in with their browser at an OpenID provider. A visitor without a session is sent there; a script or a
 * page's own request gets 401 instead. The claims of the ID token are readable as `jwt.*`. Because browsers send cookies
 * by themselves, a request that may change something must come from a page of the same origin.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { definePolicy } from "../../core/policy.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import { emptyReply, jsonReply, type Reply, textReply } from "../../core/reply.ts";
import { duration, httpUrl, secret } from "../../core/schema.ts";
import { canonicalPath } from "../../http/request-path.ts";
import { keepDiscovery, keepVerifier, keySourceOf } from "../../identity/keys/key-source.ts";
import { BrowserCookie, foreignOrigin } from "../../identity/login/browser-flow.ts";
import { type BrowserSession, createBrowserLogin, createBrowserSessions } from "../../identity/login/browser-login.ts";
import { plain } from "../../identity/providers/plain.ts";
import { StoreUnavailable } from "../../store/store.ts";

const DEFAULT_SESSION_MS = 8 * 3_600_000;
const MAX_SESSION_MS = 30 * 86_400_000;
const SAFE_METHODS: readonly string[] = ["GET", "HEAD", "OPTIONS"];

const schema = z.strictObject({
  issuer: httpUrl().describe("The provider's issuer, exactly as in its metadata and its ID tokens."),
  clientId: z.string().min(1).describe("The client that is registered at the provider for this gateway."),
  clientSecret: secret()
    .optional()
    .describe("The secret of a confidential client. Absent: a public client; PKCE is always used."),
  clientAuth: z
    .enum(["basic", "post"])
    .optional()
    .describe("How the secret is sent. Default: `post` if the provider's metadata lists it, otherwise `basic`."),
  redirectUri: httpUrl()
    .refine(
      (text) => !URL.canParse(text) || new URL(text).pathname !== "/",
      "the path must not be `/`: it is answered by the policy itself",
    )
    .refine((text) => !/[?#]/.test(text), "expected a URL without query and fragment")
    .describe(
      "The URL that the provider sends browsers back to, registered there; the gateway answers its path. It also tells under which host name browsers see the gateway.",
    ),
  logoutPath: z
    .string()
    .regex(/^\/[A-Za-z0-9._~/-]+$/, "expected a path")
    .optional()
    .describe("A POST to this path signs out. Default: `logout` beside the path of `redirectUri`."),
  scopes: z
    .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, "not a scope"))
    .refine((scopes) => scopes.includes("openid"), "`openid` is required")
    .optional()
    .describe("Default: openid, profile, email."),
  sessionTimeout: duration()
    .refine((ms) => ms >= 60_000 && ms <= MAX_SESSION_MS, "expected 1m to 30d")
    .optional()
    .describe("When a user must sign in again, 1m to 30d. Default: 8h."),
});

type OidcConfig = z.output<typeof schema>;

export const oidc = definePolicy({
  kind: "oidc",
  doc: "Signs users in with their browser at an OpenID provider.",
  scopes: ["gateway", "route"],
  role: "security",
  schema,
  trustedHosts: ({ redirectUri }) => [new URL(redirectUri).hostname],
  extraMatches: (config) => [{ exact: callbackPathOf(config) }, { exact: logoutPathOf(config) }],

  compile(config, env) {
    const { issuer, clientId, redirectUri } = config;
    const { origin } = new URL(redirectUri);
    const callbackPath = callbackPathOf(config);
    const logoutPath = logoutPathOf(config);
    const lifetimeMs = config.sessionTimeout ?? DEFAULT_SESSION_MS;
    const realm = createHash("sha256")
      .update(JSON.stringify([issuer, clientId, redirectUri]))
      .digest("hex")
      .slice(0, 8);
    const cookie = new BrowserCookie(`session_${realm}`, redirectUri);
    const provider = plain({ issuer });
    const discovery = keepDiscovery(provider, env);
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
      verifier: keepVerifier(keySourceOf(undefined, provider), discovery, env),
      signingKey: env.signingKey,
      store: env.store,
      fetch: env.fetch,
      clock: env.clock,
    });

    async function request(exchange: Exchange): Promise<Reply | undefined> {
      const asked = exchange.request;
      const { path, method } = asked;
      try {
        if (path === callbackPath) return await callback(asked);
        const ids = cookie.read(asked.headers);
        if (path === logoutPath) return await logout(asked, ids);
        const session = await sessionOf(ids);
        if (session === undefined) return await withoutSession(asked, ids.length > 0);
        if (!SAFE_METHODS.includes(method) || asked.headers.has("upgrade")) requireSameOrigin(asked);
        return admit(exchange, session);
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        throw new GatewayError("not_ready", { message: "sign-ins are not available now", detail: error.message });
      }
    }

    async function sessionOf(ids: readonly string[]): Promise<BrowserSession | undefined> {
      for (const id of ids) {
        const session = await sessions.find(id);
        if (session !== undefined) return session;
      }
      return undefined;
    }

    function admit(exchange: Exchange, { claims, principal }: BrowserSession): undefined {
      exchange.facts.jwt = claims;
      exchange.identity.browserSession = { origin, logoutPath };
      exchange.authenticated(principal);
      return undefined;
    }

    async function callback(asked: GatewayRequest): Promise<Reply> {
      if (asked.method !== "GET") return textReply(405, "method not allowed; use GET\n", { allow: "GET" });
      const { claims, principal, returnTo, clearing } = await login.finish(asked);
      for (const before of cookie.read(asked.headers)) await sessions.end(before);
      const id = await sessions.open({ claims, principal }, lifetimeMs);
      logger.info("user signed in", { subject: String(claims.sub), owner: env.owner });
      const reply = emptyReply(302, { location: returnTo, "cache-control": "no-store" });
      reply.headers.add("set-cookie", cookie.line(id, Math.floor(lifetimeMs / 1000)));
      reply.headers.add("set-cookie", clearing);
      return { ...reply, confidential: true };
    }

    async function logout(asked: GatewayRequest, ids: readonly string[]): Promise<Reply> {
      if (asked.method !== "POST") return textReply(405, "method not allowed; use POST\n", { allow: "POST" });
      requireSameOrigin(asked);
      for (const id of ids) await sessions.end(id);
      const location = (await login.endSessionUrl()) ?? null;
      const headers = { "set-cookie": cookie.clearing(), "cache-control": "no-store" };
      return isNavigation(asked) && location !== null
        ? emptyReply(303, { ...headers, location })
        : jsonReply(200, { signedOut: true, location }, headers);
    }

    async function withoutSession(asked: GatewayRequest, hadOne: boolean): Promise<Reply> {
      if ((asked.method === "GET" || asked.method === "HEAD") && isNavigation(asked)) return login.begin(asked);
      throw new GatewayError("authentication_failed", {
        message: hadOne ? "the session has ended; sign in again\n" : `sign in with a browser at ${origin}\n`,
        detail: hadOne ? "the session is unknown or has ended" : "there is no session cookie",
      });
    }

    /** The browser adds the session's cookie to requests of any page, so the page must be one of the gateway. */
    function requireSameOrigin(asked: GatewayRequest): void {
      const detail = foreignOrigin(asked, origin);
      if (detail === undefined) return;
      throw new GatewayError("origin_denied", {
        message: `requests that change something must come from a page of ${origin}\n`,
        detail,
      });
    }

    return {
      request,
      assume(exchange, given) {
        if (!("claims" in given)) return exchange.skip("a session is needed, not a token");
        return admit(exchange, { claims: given.claims, principal: tokenPrincipal(given.claims, "") });
      },
      recall(exchange, { claims }) {
        if (claims === undefined) throw new GatewayError("authentication_failed", { detail: "nobody was signed in" });
        return admit(exchange, { claims, principal: tokenPrincipal(claims, "") });
      },
    };
  },
});

function callbackPathOf({ redirectUri }: OidcConfig): string {
  return canonicalPath(new URL(redirectUri).pathname);
}

function logoutPathOf({ logoutPath, redirectUri }: OidcConfig): string {
  return canonicalPath(logoutPath ?? new URL("logout", redirectUri).pathname);
}

/** Somebody opens a page; the requests of a page itself cannot follow a redirect to another site. */
function isNavigation({ headers }: GatewayRequest): boolean {
  // Browsers say it, but not to plain http addresses other than their own machine.
  if (headers.has("sec-fetch-site"))
    return headers.get("sec-fetch-mode") === "navigate" && headers.get("sec-fetch-dest") !== "iframe";
  return /\btext\/html\b/.test(headers.get("accept") ?? "");
}
