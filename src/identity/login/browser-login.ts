/**
 * Implements browser sign-in with OpenID Connect (authorization code with PKCE). It redirects to the identity provider
 * and exchanges the callback's code for an ID token. The state is kept in a signed cookie, so abandoned sign-ins use no
 * memory.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { addToQuery, readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import { emptyReply, type Reply } from "../../core/reply.ts";
import type { Claims } from "../../core/request-attributes.ts";
import type { Fetch } from "../../http/fetch.ts";
import { readJson } from "../../json/read-json.ts";
import type { OwnedStore } from "../../store/owned-store.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import type { TokenVerifier } from "../keys/token-verifier.ts";
import { codeRequestUrl, createVerifier, requestToken } from "../oauth/oauth-requests.ts";
import { type Discovery, mayCall } from "../providers/discovery.ts";
import { providerError } from "../providers/provider.ts";
import { readUnverified, show } from "../tokens/token.ts";
import { BrowserCookie } from "./browser-flow.ts";

const PENDING_LOGIN = peerInput("client/login-state");
const ID_TOKEN = peerInput("identity-provider/id-token");
const SESSION = peerInput("store/browser-session");
const TOKEN_RESPONSE = peerInput("identity-provider/token-response");
const QUERY = peerInput("client/query");

const LOGIN_MS = 600_000;
const TIMEOUT_MS = 10_000;
/** Limits the concurrent sign-ins per browser, because each adds a cookie to every request. */
const SLOTS = 4;
/** A longer return path is replaced with `/`, because cookies are limited to 4 KiB. */
const MAX_RETURN_CHARS = 1_500;

export interface BrowserLoginOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string | undefined;
  readonly clientAuth: "basic" | "post" | undefined;
  readonly redirectUri: string;
  readonly scopes: readonly string[];
  readonly realm: string;
  readonly discovery: Discovery;
  readonly verifier: TokenVerifier;
  readonly signingKey: SigningKey;
  readonly store: OwnedStore;
  readonly fetch: Fetch;
  readonly clock: Clock;
}

export interface SignedIn {
  readonly claims: Claims;
  readonly principal: string;
  readonly returnTo: string;
  readonly clearing: string;
}

export interface BrowserLogin {
  begin(request: GatewayRequest): Promise<Reply>;
  finish(request: GatewayRequest): Promise<SignedIn>;
  /** Resolves to undefined if the provider's metadata is unavailable or has no logout URL. */
  endSessionUrl(): Promise<string | undefined>;
}

interface PendingLogin {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  readonly returnTo: string;
  readonly untilMs: number;
}

export function createBrowserLogin(options: BrowserLoginOptions): BrowserLogin {
  const { issuer, clientId, redirectUri, realm, discovery, clock, signingKey } = options;
  const { origin } = new URL(redirectUri);
  const stateCookie = (state: string): BrowserCookie => new BrowserCookie(`signin_${realm}_${state[0]}`, redirectUri);
  const finished = options.store.at("signins-finished");
  const signed = (payload: string): string => signingKey.sign("sign-in", realm, payload);

  async function begin(request: GatewayRequest): Promise<Reply> {
    const authorize = requireEndpoint(await discovery.get(), "authorization_endpoint");
    const pending: PendingLogin = {
      state: `${randomBytes(1).readUInt8() % SLOTS}${random()}`,
      nonce: random(),
      verifier: createVerifier(),
      returnTo: returnTo(request),
      untilMs: clock.now() + LOGIN_MS,
    };
    const payload = Buffer.from(JSON.stringify(pending)).toString("base64url");
    const parameters = {
      response_type: "code",
      client_id: clientId,
      redirect_uri: redirectUri,
      scope: options.scopes.join(" "),
      state: pending.state,
      nonce: pending.nonce,
    };
    return emptyReply(302, {
      location: codeRequestUrl(authorize, parameters, pending.verifier),
      "set-cookie": stateCookie(pending.state).line(`${payload}.${signed(payload)}`, LOGIN_MS / 1000),
      "cache-control": "no-store",
    });
  }

  /** The origin is prepended, so the result cannot lead to another host. */
  function returnTo({ path, query }: GatewayRequest): string {
    const target = query === "" ? path : `${path}?${query}`;
    return `${origin}${target.length > MAX_RETURN_CHARS ? "/" : target}`;
  }

  /**
   * Other hosts of the domain may have set cookies with the same name. Only a cookie that the gateway signed for this
   * state is accepted.
   */
  function findPendingLogin(request: GatewayRequest, state: string): PendingLogin {
    const cookies = /^[0-9][A-Za-z0-9_-]+$/.test(state) ? stateCookie(state).read(request.headers) : [];
    const candidates = cookies.flatMap((value) => {
      const [payload = "", signature = ""] = value.split(".");
      return signingKey.isSignature(signature, "sign-in", realm, payload)
        ? [readJson(PENDING_LOGIN, Buffer.from(payload, "base64url")) as PendingLogin]
        : [];
    });
    if (candidates.length === 0)
      throw signInFailed(
        `the sign-in was not begun in this browser at ${origin}, or cookies are blocked`,
        `there is no cookie for the state; sign-ins begin and end at ${origin}`,
      );
    const pending = candidates.find((one) => isSame(one.state, state));
    if (pending === undefined)
      throw signInFailed("another sign-in was begun meanwhile", "the state is of another sign-in");
    if (pending.untilMs < clock.now()) throw signInFailed("it took longer than 10 minutes", "the state is too old");
    return pending;
  }

  /** Prevents a replay of the cookie after the sign-in. Only successful sign-ins are recorded. */
  async function finishOnce({ state, untilMs }: PendingLogin): Promise<void> {
    const key = `${realm}.${createHash("sha256").update(state).digest("base64url")}`;
    if (!(await finished.replace(key, undefined, "1", { expiresAtMs: untilMs })))
      throw signInFailed("this sign-in was finished before", "the state was used before");
  }

  async function finish(request: GatewayRequest): Promise<SignedIn> {
    const answer = readForm(QUERY, request.query);
    const state = answer.get("state") ?? "";
    const pending = findPendingLogin(request, state);
    const problem = answer.get("error");
    if (problem !== null) {
      const description = answer.get("error_description");
      throw signInFailed(
        `the identity provider answered ${shown(problem)}${description ? `: ${shown(description)}` : ""}`,
      );
    }
    // The check prevents mix-up attacks with the response of another provider (RFC 9207).
    const iss = answer.get("iss");
    if (iss !== null && iss !== issuer)
      throw signInFailed(
        "the answer comes from another identity provider",
        `iss is ${shown(iss)}, expected ${issuer}: set \`issuer\` exactly as the provider does`,
      );
    const code = answer.get("code");
    if (code === null || code === "") throw signInFailed("the identity provider sent no code");
    const { claims, principal } = await verifyIdToken(await exchangeCode(code, pending.verifier), pending.nonce);
    await finishOnce(pending);
    return { claims, principal, returnTo: pending.returnTo, clearing: stateCookie(state).clearing() };
  }

  async function exchangeCode(code: string, verifier: string): Promise<string> {
    const metadata = await discovery.get();
    const url = requireEndpoint(metadata, "token_endpoint");
    if (!mayCall(url, issuer))
      throw signInFailed("the identity provider's metadata is not safe", `token_endpoint ${shown(url)} has no TLS`);
    const grant = {
      grant_type: "authorization_code",
      code,
      redirect_uri: redirectUri,
      code_verifier: verifier,
      client_id: clientId,
    };
    const { fetch, clientSecret } = options;
    const client = { clientId, clientSecret, method: usesBasic(metadata) ? "basic" : "post" } as const;
    const endpoint = { url, fetch, timeoutMs: TIMEOUT_MS, input: TOKEN_RESPONSE };
    const { status, members: token } = await requestToken(endpoint, client, Object.entries(grant)).catch(
      (error: unknown) => {
        throw providerError(error, url);
      },
    );
    if (status === 200 && typeof token.id_token === "string") return token.id_token;
    if (status === 200)
      throw signInFailed(
        "the identity provider sent no ID token",
        "add `openid` to `scopes`, and check the client's settings",
      );
    const reason = `${shown(token.error ?? status)}${token.error_description ? `: ${shown(token.error_description)}` : ""}`;
    throw signInFailed(`the identity provider rejected the code with ${reason}`, suggestFix(token.error));
  }

  function usesBasic({ token_endpoint_auth_methods_supported: methods }: Claims): boolean {
    if (options.clientAuth !== undefined) return options.clientAuth === "basic";
    return !(Array.isArray(methods) && methods.includes("client_secret_post"));
  }

  async function verifyIdToken(token: string, nonce: string) {
    const verdict = await options.verifier.verify(token, { issuer, audiences: [clientId], isIdToken: true });
    if (verdict.kind === "unavailable")
      throw new GatewayError("not_ready", {
        message: "the identity provider's keys are not available yet",
        detail: verdict.detail,
        headers: { "retry-after": String(verdict.retryAfterSeconds) },
      });
    if (verdict.kind === "invalid") throw signInFailed(`ID token: ${verdict.problem.reason}`, verdict.problem.detail);
    const { claims } = verdict;
    if (/^(?:application\/)?at\+jwt$/i.test(readUnverified(token, ID_TOKEN)?.type ?? ""))
      throw signInFailed(
        "the identity provider sent an access token in place of the ID token",
        "typ of the ID token is at+jwt",
      );
    if (typeof claims.nonce !== "string" || !isSame(claims.nonce, nonce))
      throw signInFailed("the ID token is not of this sign-in", "its nonce is missing or another one");
    const isForSeveral = Array.isArray(claims.aud) && claims.aud.length > 1;
    if (claims.azp === undefined ? isForSeveral : claims.azp !== clientId)
      throw signInFailed("the ID token is for another client", `azp is ${shown(claims.azp)}, expected ${clientId}`);
    if (typeof claims.sub !== "string" || claims.sub === "")
      throw signInFailed("the ID token names no user", "the claim sub is missing");
    return verdict;
  }

  return {
    begin,
    finish,
    async endSessionUrl() {
      const metadata = await discovery.get().catch(() => undefined);
      const { end_session_endpoint: url } = metadata ?? {};
      if (typeof url !== "string") return undefined;
      const end = new URL(url);
      addToQuery(end, "set", [["client_id", clientId]]);
      return end.href;
    },
  };
}

function random(): string {
  return randomBytes(32).toString("base64url");
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function shown(value: unknown): string {
  return show(value).replace(/[^\x20-\x7e\u00a0-\u{10ffff}]/gu, " ");
}

function requireEndpoint(metadata: Claims, name: string): string {
  const url = metadata[name];
  if (typeof url === "string") return url;
  throw signInFailed(`the identity provider's metadata has no ${name}`);
}

function signInFailed(reason: string, detail?: string): GatewayError {
  return new GatewayError("authentication_failed", {
    message: `sign-in failed: ${reason}. Open the page again to retry.\n`,
    detail: detail ?? reason,
    headers: { "cache-control": "no-store" },
  });
}

function suggestFix(error: unknown): string | undefined {
  if (error === "invalid_client") return "check `clientId`, `clientSecret` and `clientAuth`";
  if (error === "invalid_grant") return "check that `redirectUri` is the registered one";
  return undefined;
}

const ID_BYTES = 32;
const ID = /^[A-Za-z0-9_-]{43}$/;

export interface BrowserSession {
  readonly claims: Claims;
  readonly principal: string;
}

export interface BrowserSessions {
  open(session: BrowserSession, lifetimeMs: number): Promise<string>;
  find(id: string): Promise<BrowserSession | undefined>;
  end(id: string): Promise<void>;
}

/** `realm` separates the sessions of different policies. */
export function createBrowserSessions(store: OwnedStore, clock: Clock, realm: string): BrowserSessions {
  const sessions = store.at("signins");
  const keyOf = (id: string): string => `${realm}.${createHash("sha256").update(id).digest("base64url")}`;
  return {
    async open(session, lifetimeMs) {
      const id = randomBytes(ID_BYTES).toString("base64url");
      const endsAtMs = clock.now() + lifetimeMs;
      await sessions.set(keyOf(id), JSON.stringify({ ...session, endsAtMs }), { expiresAtMs: endsAtMs });
      return id;
    },
    async find(id) {
      if (!ID.test(id)) return undefined;
      const kept = await sessions.get(keyOf(id));
      if (kept === undefined) return undefined;
      const { endsAtMs, ...session } = readJson(SESSION, kept) as BrowserSession & { readonly endsAtMs: number };
      return endsAtMs > clock.now() ? session : undefined;
    },
    async end(id) {
      if (ID.test(id)) await sessions.delete(keyOf(id));
    },
  };
}
