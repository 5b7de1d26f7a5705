/**
 * `sessionPersistence`: sends the requests of a client's session to the same server of a route, as long as the route has
 * it. The client returns a token in a cookie or a header. The gateway stores nothing, so every replica accepts the
 * token.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import { constantRegExp } from "../../base/constant-regexp.ts";
import { isHeaderName } from "../../base/header-names.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { definePolicy, type Hooks } from "../../core/policy.ts";
import { duration, secret } from "../../core/schema.ts";
import type { PersistentRoute, PersistentServer } from "../../core/session-persistence.ts";
import { END_TO_END_HEADERS, includesHeader, MESSAGE_HEADERS } from "../../http/header-rules.ts";
import type { HeaderList } from "../../http/headers.ts";
import { cookiePairs } from "../../identity/access/cookies.ts";
import { cookiePath } from "./cookie-path.ts";
import { ServerTokens, TOKEN_CHARS } from "./server-tokens.ts";

const MAX_NAME_CHARS = 128;
const HEADER_NAME = "x-gateway-session";
/** The prefix `gateway_` keeps the cookie from backends. */
const COOKIE_PREFIX = "gateway_session_";
/** Clients can send several cookies with the same name. Cookies beyond this number are ignored. */
const MAX_SAME_NAME = 8;
/** Clocks of replicas may differ by this time. */
const CLOCK_SKEW_MS = 60_000;
/** An idle session is extended when this share of its timeout has passed, which avoids a cookie in every response. */
const EXTENSION_SHARE = 0.1;
/** The server, and if the session has a timeout, the times of its start and its last extension. */
const SESSION = constantRegExp(`^([A-Za-z0-9_-]{${TOKEN_CHARS}})(?:\\.([0-9a-z]{1,10})\\.([0-9a-z]{1,10}))?$`);
const RESERVED_HEADERS = new Set([...MESSAGE_HEADERS, ...END_TO_END_HEADERS, "set-cookie", "x-request-id"]);

const timeout = () => duration().refine((ms) => ms > 0, "expected a duration above 0");

const schema = z
  .strictObject({
    type: z
      .enum(["cookie", "header"])
      .default("cookie")
      .describe(
        "`cookie` sets a cookie. `header` sends a response header, which the client returns in its requests. Default: cookie.",
      ),
    name: z
      .string()
      .max(MAX_NAME_CHARS)
      .refine(isHeaderName, "expected letters, digits, and `-`, `_` or `.`")
      .optional()
      .describe(
        "The name of the cookie or header, which the backend must not use itself. Default: a cookie named after the route, or the header `x-gateway-session`.",
      ),
    absoluteTimeout: timeout().optional().describe("Ends a session this long after its start, for example `8h`."),
    idleTimeout: timeout().optional().describe("Ends a session that has had no requests for this long."),
    lifetime: z
      .enum(["session", "permanent"])
      .default("session")
      .describe(
        "`session` cookies end with the browser's session. `permanent` cookies have a `Max-Age` and need `absoluteTimeout`. Default: session.",
      ),
    key: secret()
      .optional()
      .describe(
        "Prevents clients from finding the address of a server by trying possible addresses. Use the same key for all replicas.",
      ),
  })
  .superRefine(({ type, name = "", lifetime, absoluteTimeout }, context) => {
    const issue = (path: string, message: string): void => context.addIssue({ code: "custom", path: [path], message });
    if (lifetime === "permanent" && type === "header") issue("lifetime", "only cookies can be permanent");
    else if (lifetime === "permanent" && absoluteTimeout === undefined)
      issue("lifetime", "`permanent` needs `absoluteTimeout`");
    if (type === "header" && includesHeader(RESERVED_HEADERS, name.toLowerCase()))
      issue("name", "this header has another meaning");
    if (type === "cookie" && /^__host-/i.test(name)) issue("name", "a `__Host-` cookie cannot have a path");
  });

interface Token {
  readonly server: string;
  readonly startedMs: number | undefined;
  readonly extendedMs: number | undefined;
}

interface ClientSession {
  readonly presented: readonly Token[];
  /** The token whose server got the request. */
  kept: Token | undefined;
  route: PersistentRoute | undefined;
}

export const sessionPersistence = definePolicy({
  kind: "sessionPersistence",
  doc: "Sends the requests of a client's session to the same server, identified by a cookie or a header.",
  scopes: ["route"],
  protection: () => "none",
  schema,

  compile({ type, name, absoluteTimeout, idleTimeout, lifetime, key = "" }, env): Hooks {
    const clientSession = new StateKey<ClientSession>();
    const tokensByRoute = new WeakMap<PersistentRoute, ServerTokens>();
    const hasTimeout = absoluteTimeout !== undefined || idleTimeout !== undefined;

    function tokensOf(route: PersistentRoute): ServerTokens {
      const known = tokensByRoute.get(route) ?? new ServerTokens(route, key);
      tokensByRoute.set(route, known);
      return known;
    }

    const sessionName = (route: string): string =>
      name === undefined ? defaultName(type, route) : type === "header" ? name.toLowerCase() : name;

    function isExpired({ startedMs, extendedMs }: Token, nowMs: number): boolean {
      if (!hasTimeout) return false;
      if (startedMs === undefined || extendedMs === undefined) return true;
      if (Math.max(startedMs, extendedMs) > nowMs + CLOCK_SKEW_MS) return true;
      if (absoluteTimeout !== undefined && nowMs - startedMs >= absoluteTimeout) return true;
      return idleTimeout !== undefined && nowMs - extendedMs >= idleTimeout;
    }

    const needsExtension = ({ extendedMs = 0 }: Token, nowMs: number): boolean =>
      idleTimeout !== undefined && nowMs - extendedMs >= idleTimeout * EXTENSION_SHARE;

    function find(exchange: Exchange, route: PersistentRoute): PersistentServer | undefined {
      const session = exchange.state(clientSession);
      if (session === undefined) return undefined;
      session.route = route;
      session.kept = undefined;
      if (exchange.upstream.startedMs !== undefined) return undefined;
      const nowMs = env.clock.now();
      const isCurrent = (token: Token): boolean => !isExpired(token, nowMs);
      for (const token of session.presented.filter(isCurrent)) {
        const server = tokensOf(route).find(token.server);
        if (server === undefined) continue;
        session.kept = token;
        trace(exchange, "continued", server.address);
        return server;
      }
      if (session.presented.length > 0) trace(exchange, session.presented.some(isCurrent) ? "unknown" : "expired");
      return undefined;
    }

    function setCookie(exchange: Exchange, route: PersistentRoute, value: string, leftMs: number | undefined): string {
      const { originalPath, arrived } = exchange;
      const maxAge = lifetime === "permanent" ? `; Max-Age=${Math.ceil((leftMs ?? 0) / 1000)}` : "";
      const secure = arrived.scheme === "https" ? "; Secure" : "";
      const path = cookiePath(route, originalPath);
      return `${sessionName(route.name)}=${value}; Path=${path}${maxAge}; HttpOnly; SameSite=Strict${secure}`;
    }

    return {
      settings: { sessions: { find } },
      shape: {
        head(exchange) {
          const { headers } = exchange.request;
          const tokens = takeTokens(headers, type, sessionName(exchange.route ?? ""));
          exchange.setState(clientSession, { presented: tokens, kept: undefined, route: undefined });
          return undefined;
        },
      },
      response: {
        head(exchange) {
          const { response, upstream } = exchange;
          const { route, kept } = exchange.state(clientSession) ?? {};
          if (route === undefined || response?.source !== "upstream" || upstream.backendIndex === undefined) return;
          const server = tokensOf(route).tokenOf(upstream.backendIndex, upstream.endpoint);
          if (server === undefined) return;
          const nowMs = env.clock.now();
          const isSame = kept?.server === server;
          if (isSame && !needsExtension(kept, nowMs)) return;
          const startedMs = (isSame ? kept.startedMs : undefined) ?? nowMs;
          const times = hasTimeout ? `.${startedMs.toString(36)}.${nowMs.toString(36)}` : "";
          const leftMs = absoluteTimeout === undefined ? undefined : startedMs + absoluteTimeout - nowMs;
          const value = `${server}${times}`;
          if (type === "cookie") response.headers.add("set-cookie", setCookie(exchange, route, value, leftMs));
          else response.headers.set(sessionName(route.name), value);
          trace(exchange, isSame ? "extended" : "started", upstream.endpoint);
        },
      },
    };
  },
});

function trace(exchange: Exchange, session: string, endpoint?: string): void {
  const details = { session, ...(endpoint === undefined ? {} : { endpoint }) };
  exchange.trace?.point({ type: "policyEvent", kind: "sessionPersistence", details });
}

function defaultName(type: "cookie" | "header", route: string): string {
  if (type === "header") return HEADER_NAME;
  return `${COOKIE_PREFIX}${createHash("sha256").update(route).digest("hex").slice(0, 8)}`;
}

/** Removes the tokens from the request, because a backend has no use for them. */
function takeTokens(headers: HeaderList, type: "cookie" | "header", name: string): Token[] {
  if (type === "header") {
    const tokens = headers.getAll(name).slice(0, MAX_SAME_NAME).flatMap(parseToken);
    if (tokens.length > 0) headers.delete(name);
    return tokens;
  }
  if (!headers.has("cookie")) return [];
  const start = `${name}=`;
  const pairs = cookiePairs(headers);
  const isToken = (pair: string): boolean => pair.startsWith(start) && SESSION.test(pair.slice(start.length));
  const own = pairs.filter(isToken);
  if (own.length === 0) return [];
  const others = pairs.filter((pair) => !isToken(pair));
  if (others.length === 0) headers.delete("cookie");
  else headers.set("cookie", others.join("; "));
  return own.slice(0, MAX_SAME_NAME).flatMap((pair) => parseToken(pair.slice(start.length)));
}

function parseToken(text: string): Token[] {
  const [, server, started, extended] = SESSION.exec(text) ?? [];
  if (server === undefined) return [];
  return [
    {
      server,
      startedMs: started === undefined ? undefined : Number.parseInt(started, 36),
      extendedMs: extended === undefined ? undefined : Number.parseInt(extended, 36),
    },
  ];
}
