/**
 * Manages user logins at remote servers: connected accounts, token renewal, and the connect flow. A token is available
 * only to the principal that connected it.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { Logger } from "../../observe/log/logger.ts";
import type { OauthConfig } from "../server-side/target-config.ts";
import {
  authorizationUrl,
  createVerifier,
  discoverOauthServer,
  exchangeCode,
  GrantRefused,
  type OauthClient,
  type OauthServer,
  refreshTokens,
  registerClient,
  revokeTokens,
  type Tokens,
} from "./oauth-client.ts";
import { placeName, type Vault } from "./vault.ts";

/** Limits how long a connect URL is valid, because a URL may leak. */
const INVITATION_MS = 600_000;
/** A token that expires within this time is renewed when it is used. */
const EARLY_MS = 60_000;
/** Limits how long a token is used without reading the vault, because other replicas may change the vault. */
const CACHED_MS = 30_000;
const MAX_CACHED_LOGINS = 10_000;
const SERVER_MS = 600_000;

export interface Connection {
  readonly principal: string;
  readonly login: string;
  readonly tokens: Tokens;
  readonly connectedAtMs: number;
}

export interface Invitation {
  readonly principal: string;
  readonly login: string;
  /** A display name of the user. Records of older versions have none. */
  readonly person?: string;
}

export interface Flow extends Invitation {
  readonly verifier: string;
  readonly issuer: string;
  readonly client: OauthClient;
  /** A digest of the secret in the cookie of the browser that started the flow. */
  readonly browser: string;
}

export interface ServerLoginOptions {
  readonly clock: Clock;
  readonly fetch: Fetch;
  readonly logger: Logger;
  readonly vault: Vault;
}

export class ServerLogin {
  /** Has the form `<backend>/<target>`. */
  readonly id: string;
  readonly targetName: string;
  readonly serverUrl: string;
  readonly #config: OauthConfig;
  readonly #env: ServerLoginOptions;
  readonly #cache = new Map<string, { readonly connection: Connection; readonly readAtMs: number }>();
  readonly #renewals = new Map<string, Promise<Connection | undefined>>();
  readonly #invitations = new Map<string, { readonly url: string; readonly untilMs: number }>();
  readonly #watchers = new Map<string, Set<() => void>>();
  #server: { readonly found: Promise<OauthServer>; readonly untilMs: number } | undefined = undefined;
  #registering: Promise<OauthClient> | undefined = undefined;

  constructor(id: string, targetName: string, serverUrl: string, config: OauthConfig, env: ServerLoginOptions) {
    this.id = id;
    this.targetName = targetName;
    this.serverUrl = serverUrl;
    this.#config = config;
    this.#env = env;
  }

  get redirectUri(): string {
    return `${this.#config.connectUrl.replace(/\/$/, "")}/callback`;
  }

  /**
   * Resolves with the access token of the principal, renewed if necessary, or with undefined if the principal must log
   * in. `refused` is a token that the server no longer accepts.
   */
  async token(principal: string, refused?: string): Promise<string | undefined> {
    const cached = this.#cache.get(principal);
    const nowMs = this.#env.clock.now();
    if (
      cached &&
      refused === undefined &&
      nowMs - cached.readAtMs < CACHED_MS &&
      cached.connection.tokens.expiresAtMs - nowMs > EARLY_MS
    )
      return cached.connection.tokens.accessToken;
    const connection = await this.#env.vault.get<Connection>(this.#place(principal));
    if (connection?.principal !== principal || connection.login !== this.id) {
      this.#cache.delete(principal);
      return undefined;
    }
    const { tokens } = connection;
    const isGood = tokens.expiresAtMs - nowMs > EARLY_MS && tokens.accessToken !== refused;
    if (isGood) return this.#remembered(connection).tokens.accessToken;
    return (await this.#renewed(principal, connection, refused))?.tokens.accessToken;
  }

  async invite(principal: string, person: string): Promise<string> {
    const nowMs = this.#env.clock.now();
    const known = this.#invitations.get(principal);
    if (known && known.untilMs - nowMs > INVITATION_MS / 2) return known.url;
    const ticket = randomBytes(24).toString("base64url");
    const untilMs = nowMs + INVITATION_MS;
    const invitation: Invitation = { principal, login: this.id, person };
    await this.#env.vault.put(`invitation/${ticket}`, invitation, untilMs);
    const url = `${this.#config.connectUrl.replace(/\/$/, "")}/start?ticket=${ticket}`;
    if (this.#invitations.size >= MAX_CACHED_LOGINS) this.#invitations.clear();
    this.#invitations.set(principal, { url, untilMs });
    return url;
  }

  /** `secret` identifies the browser. */
  async begin({ principal }: Invitation, secret: string): Promise<{ readonly url: string; readonly state: string }> {
    const server = await this.#discovered();
    const client = await this.#client(server);
    const state = randomBytes(24).toString("base64url");
    const verifier = createVerifier();
    const flow: Flow = { principal, login: this.id, verifier, issuer: server.issuer, client, browser: digest(secret) };
    await this.#env.vault.put(`flow/${state}`, flow, this.#env.clock.now() + INVITATION_MS);
    this.#invitations.delete(principal);
    const scopes = this.#config.scopes ?? server.scopes;
    const { redirectUri } = this;
    return { url: authorizationUrl(server, { client, redirectUri, state, verifier, scopes }), state };
  }

  async finish(flow: Flow, answer: { code: string; issuer: string | undefined }): Promise<void> {
    const server = await this.#discovered();
    if (server.issuer !== flow.issuer || (answer.issuer ?? (server.sendsIssuer ? "" : flow.issuer)) !== flow.issuer)
      throw new Error("The response comes from another authorization server.");
    const { code } = answer;
    const { verifier, client } = flow;
    const nowMs = this.#env.clock.now();
    const tokens = await exchangeCode(
      server,
      client,
      { code, verifier, redirectUri: this.redirectUri },
      this.#env.fetch,
      nowMs,
    );
    await this.#save({ principal: flow.principal, login: this.id, tokens, connectedAtMs: nowMs });
    this.#env.logger.info("MCP account connected", { target: this.targetName });
    for (const connected of this.#watchers.get(flow.principal) ?? []) connected();
  }

  /** Deletes the tokens. Resolves with true if the server also revoked them. */
  async revoke(principal: string): Promise<boolean> {
    const connection = await this.#env.vault.get<Connection>(this.#place(principal));
    // Waits for a running renewal, because it may store new tokens.
    await this.#renewals.get(principal)?.catch(() => undefined);
    const last = (await this.#env.vault.get<Connection>(this.#place(principal))) ?? connection;
    await this.#env.vault.delete(this.#place(principal));
    this.#cache.delete(principal);
    if (last === undefined) return false;
    try {
      const server = await this.#discovered();
      return await revokeTokens(server, await this.#client(server), last.tokens, this.#env.fetch);
    } catch {
      // The tokens are deleted from the vault, but they may stay valid at the server until they expire.
      return false;
    }
  }

  forgetCached(): void {
    this.#cache.clear();
  }

  /**
   * Calls `connected` whenever the principal connects an account in this process. Returns a function that stops the
   * calls.
   */
  watch(principal: string, connected: () => void): () => void {
    const watchers = this.#watchers.get(principal) ?? new Set();
    this.#watchers.set(principal, watchers);
    watchers.add(connected);
    return () => {
      watchers.delete(connected);
      if (watchers.size === 0) this.#watchers.delete(principal);
    };
  }

  connections(): Promise<{ readonly value: Connection }[]> {
    return this.#env.vault.list<Connection>(`token/${placeName(this.id, this.serverUrl)}/`);
  }

  #place(principal: string): string {
    return `token/${placeName(this.id, this.serverUrl)}/${placeName(principal)}`;
  }

  /** Runs one renewal at a time per principal, because many servers accept a refresh token only once. */
  #renewed(principal: string, connection: Connection, refused: string | undefined): Promise<Connection | undefined> {
    const running = this.#renewals.get(principal);
    if (running !== undefined) return running;
    const renewal = this.#renew(principal, connection, refused).finally(() => this.#renewals.delete(principal));
    this.#renewals.set(principal, renewal);
    return renewal;
  }

  async #renew(
    principal: string,
    connection: Connection,
    refused: string | undefined,
  ): Promise<Connection | undefined> {
    const { tokens } = connection;
    const nowMs = this.#env.clock.now();
    try {
      if (tokens.refreshToken === undefined) {
        if (tokens.expiresAtMs > nowMs && tokens.accessToken !== refused) return this.#remembered(connection);
        throw new GrantRefused("there is no refresh token");
      }
      const server = await this.#discovered();
      const client = await this.#client(server);
      const fresh = await refreshTokens(server, client, tokens.refreshToken, this.#env.fetch, nowMs);
      return await this.#save({ ...connection, tokens: fresh });
    } catch (error) {
      if (!(error instanceof GrantRefused)) throw error;
      // Another replica may have renewed the tokens.
      const now = await this.#env.vault.get<Connection>(this.#place(principal));
      if (now && now.tokens.accessToken !== tokens.accessToken) return this.#remembered(now);
      await this.#env.vault.delete(this.#place(principal));
      this.#cache.delete(principal);
      this.#env.logger.info("MCP account must be connected again", { target: this.targetName, reason: error.message });
      return undefined;
    }
  }

  async #save(connection: Connection): Promise<Connection> {
    await this.#env.vault.put(this.#place(connection.principal), connection);
    return this.#remembered(connection);
  }

  #remembered(connection: Connection): Connection {
    if (this.#cache.size >= MAX_CACHED_LOGINS) this.#cache.clear();
    this.#cache.set(connection.principal, { connection, readAtMs: this.#env.clock.now() });
    return connection;
  }

  #discovered(): Promise<OauthServer> {
    const nowMs = this.#env.clock.now();
    if (this.#server && this.#server.untilMs > nowMs) return this.#server.found;
    const found = discoverOauthServer(this.serverUrl, this.#config.issuer, this.#env.fetch);
    this.#server = { found, untilMs: nowMs + SERVER_MS };
    found.catch(() => {
      this.#server = undefined;
    });
    return found;
  }

  #client(server: OauthServer): Promise<OauthClient> {
    const { clientId, clientSecret } = this.#config;
    if (clientId !== undefined) return Promise.resolve({ clientId, clientSecret });
    this.#registering ??= this.#registered(server).finally(() => {
      this.#registering = undefined;
    });
    return this.#registering;
  }

  async #registered(server: OauthServer): Promise<OauthClient> {
    const place = `client/${placeName(this.id, server.issuer, this.redirectUri)}`;
    const known = await this.#env.vault.get<OauthClient>(place);
    if (known) return known;
    const client = await registerClient(server, this.redirectUri, this.#env.fetch);
    await this.#env.vault.put(place, client);
    return client;
  }
}

export function isStartedBy(flow: Flow, secrets: readonly string[]): boolean {
  return secrets.some((secret) => isSame(flow.browser, digest(secret)));
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function isSame(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));
}

export class LoginRegistry {
  readonly #logins = new Map<string, ServerLogin>();
  readonly #vaults = new Map<string, Vault>();

  add(login: ServerLogin, vault: Vault): void {
    this.#logins.set(login.id, login);
    this.#vaults.set(login.id, vault);
  }

  remove(login: ServerLogin): void {
    if (this.#logins.get(login.id) !== login) return;
    this.#logins.delete(login.id);
    this.#vaults.delete(login.id);
  }

  get all(): readonly ServerLogin[] {
    return [...this.#logins.values()];
  }

  /** Does not invalidate the ticket. */
  invitation(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    return this.#find(ticket, (vault) => vault.get<Invitation>(`invitation/${ticket}`));
  }

  /** Invalidates the ticket. */
  accept(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    return this.#find(ticket, (vault) => vault.take<Invitation>(`invitation/${ticket}`));
  }

  /** Finds the flow of a redirect. `secretsFor` returns the secrets that the browser has for this state and login. */
  async returned(
    state: string,
    secretsFor: (login: ServerLogin) => readonly string[],
  ): Promise<{ login: ServerLogin; flow: Flow } | "other browser" | undefined> {
    const found = await this.#find(state, (vault) => vault.get<Flow>(`flow/${state}`));
    if (found === undefined) return undefined;
    if (!isStartedBy(found.invitation, secretsFor(found.login))) return "other browser";
    const taken = await this.#find(state, (vault) => vault.take<Flow>(`flow/${state}`));
    return taken && { login: taken.login, flow: taken.invitation };
  }

  async #find<Value extends Invitation>(
    secret: string,
    read: (vault: Vault) => Promise<Value | undefined>,
  ): Promise<{ login: ServerLogin; invitation: Value } | undefined> {
    if (!/^[\w-]{20,64}$/.test(secret)) return undefined;
    for (const vault of new Set(this.#vaults.values())) {
      const invitation = await read(vault);
      const login = invitation && this.#logins.get(invitation.login);
      if (login) return { login, invitation };
    }
    return undefined;
  }
}
