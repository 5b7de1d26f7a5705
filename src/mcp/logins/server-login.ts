/**
 * Manages user logins at remote servers: connected accounts, token renewal, and the connect flow. A token is available
 * only to the principal that connected it.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { type Fetch, FetchError } from "../../http/fetch.ts";
import { createVerifier } from "../../identity/oauth/oauth-requests.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { OauthConfig } from "../server-side/target-config.ts";
import {
  authorizationUrl,
  discoverOauthServer,
  endpointPlace,
  exchangeCode,
  GrantRefused,
  isSameIssuer,
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

/**
 * An authorization server as it was when the user logged in. Codes, tokens, and client secrets are sent to these
 * endpoints only, whatever the MCP server or the metadata names later.
 */
export type BoundServer = Pick<OauthServer, "issuer" | "tokenEndpoint" | "revocationEndpoint" | "resource">;

export interface Connection {
  readonly principal: string;
  readonly login: string;
  readonly tokens: Tokens;
  readonly connectedAtMs: number;
  /** The server that issued the tokens. Records of older versions have none. */
  readonly server?: BoundServer;
}

export interface Invitation {
  readonly principal: string;
  readonly login: string;
  /** A display name of the user. Records of older versions have none. */
  readonly person?: string;
}

export interface Flow extends Invitation {
  readonly verifier: string;
  /** Flows that an older version started have none. */
  readonly server?: BoundServer & Pick<OauthServer, "sendsIssuer">;
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
  readonly #registering = new Map<string, Promise<OauthClient>>();

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
    await this.#checkSecret(server);
    const client = await this.#newClient(server);
    const state = randomBytes(24).toString("base64url");
    const verifier = createVerifier();
    const bound = { ...boundServer(server), sendsIssuer: server.sendsIssuer };
    const flow: Flow = { principal, login: this.id, verifier, server: bound, client, browser: digest(secret) };
    await this.#env.vault.put(`flow/${state}`, flow, this.#env.clock.now() + INVITATION_MS);
    this.#invitations.delete(principal);
    const scopes = this.#config.scopes ?? server.scopes;
    const { redirectUri } = this;
    return { url: authorizationUrl(server, { client, redirectUri, state, verifier, scopes }), state };
  }

  async finish(flow: Flow, answer: { code: string; issuer: string | undefined }): Promise<void> {
    const { server, verifier, client } = flow;
    if (server === undefined) throw new Error("The login was started before an upgrade.");
    if (!this.#isConfigured(server) || (answer.issuer ?? (server.sendsIssuer ? "" : server.issuer)) !== server.issuer)
      throw new Error("The response comes from another authorization server.");
    await this.#bindSecret(server);
    const { code } = answer;
    const nowMs = this.#env.clock.now();
    const tokens = await exchangeCode(
      server,
      client,
      { code, verifier, redirectUri: this.redirectUri },
      this.#env.fetch,
      nowMs,
    );
    const { principal } = flow;
    await this.#save({ principal, login: this.id, tokens, connectedAtMs: nowMs, server: boundServer(server) });
    this.#env.logger.info("MCP account connected", { target: this.targetName });
    for (const connected of this.#watchers.get(principal) ?? []) connected();
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
      const server = await this.#issuerOf(last);
      return await revokeTokens(server, await this.#knownClient(server), last.tokens, this.#env.fetch);
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
      const server = await this.#issuerOf(connection);
      const client = await this.#knownClient(server);
      const fresh = await refreshTokens(server, client, tokens.refreshToken, this.#env.fetch, nowMs).catch(
        async (error: unknown) => {
          if (error instanceof FetchError && (await this.#hasMoved(server)))
            throw new GrantRefused("its authorization server cannot be reached, and the MCP server names another one");
          throw error;
        },
      );
      return await this.#save({ ...connection, tokens: fresh, server: boundServer(server) });
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
    const found = discoverOauthServer(this.serverUrl, this.#config, this.#env.fetch);
    this.#server = { found, untilMs: nowMs + SERVER_MS };
    found.catch(() => {
      this.#server = undefined;
    });
    return found;
  }

  /** Returns the server that issued the tokens. Throws GrantRefused if that cannot be shown. */
  async #issuerOf({ server }: Connection): Promise<BoundServer> {
    if (server !== undefined) {
      if (this.#isConfigured(server)) return server;
      throw new GrantRefused("its authorization server is not the configured `issuer`");
    }
    const named = await this.#discovered();
    if (this.#config.issuer !== undefined) return named;
    const known = this.#config.clientId === undefined ? await this.#earlierRegistration(named) : undefined;
    if (known !== undefined) return named;
    throw new GrantRefused("an older version did not record its authorization server");
  }

  /** A server that was bound before `issuer` was set may be another one than the configured. */
  #isConfigured({ issuer }: BoundServer): boolean {
    const configured = this.#config.issuer;
    return configured === undefined || isSameIssuer(configured, issuer);
  }

  async #hasMoved(server: BoundServer): Promise<boolean> {
    const named = await this.#discovered().catch(() => undefined);
    return named !== undefined && !isSameServer(named, server);
  }

  /** Registers the gateway if necessary. */
  #newClient(server: OauthServer): Promise<OauthClient> {
    const { clientId, clientSecret } = this.#config;
    if (clientId !== undefined) return Promise.resolve({ clientId, clientSecret });
    const place = this.#registrationPlace(server);
    const running = this.#registering.get(place);
    if (running !== undefined) return running;
    const registering = this.#registered(server).finally(() => this.#registering.delete(place));
    this.#registering.set(place, registering);
    return registering;
  }

  async #registered(server: OauthServer): Promise<OauthClient> {
    const known = await this.#registration(server);
    if (known) return known;
    const client = await registerClient(server, this.redirectUri, this.#env.fetch);
    await this.#env.vault.put(this.#registrationPlace(server), client);
    return client;
  }

  /** Returns the client that the server's tokens were issued to. */
  async #knownClient(server: BoundServer): Promise<OauthClient> {
    const { clientId, clientSecret } = this.#config;
    if (clientId === undefined) {
      const known = await this.#registration(server);
      if (known === undefined) throw new GrantRefused("the registration of the gateway is lost");
      return known;
    }
    await this.#bindSecret(server);
    return { clientId, clientSecret };
  }

  async #registration(server: BoundServer): Promise<OauthClient | undefined> {
    return (
      (await this.#env.vault.get<OauthClient>(this.#registrationPlace(server))) ?? this.#earlierRegistration(server)
    );
  }

  /**
   * Older versions stored registrations by issuer only. They show who issued tokens and the client's secret if the issuer
   * issues tokens itself.
   */
  async #earlierRegistration({ issuer, tokenEndpoint }: BoundServer): Promise<OauthClient | undefined> {
    if (new URL(tokenEndpoint).origin !== new URL(issuer).origin) return undefined;
    return this.#env.vault.get<OauthClient>(`client/${placeName(this.id, issuer, this.redirectUri)}`);
  }

  #registrationPlace({ issuer, tokenEndpoint }: BoundServer): string {
    return `client/${placeName(this.id, issuer, endpointPlace(issuer, tokenEndpoint), this.redirectUri)}`;
  }

  /** Throws if the configured secret belongs to another server. */
  async #checkSecret(server: BoundServer): Promise<void> {
    const place = this.#secretPlace();
    const bound = place === undefined ? undefined : await this.#env.vault.get<SecretOwner>(place);
    if (bound !== undefined) requireOwner(bound, server);
  }

  /**
   * Binds a configured secret without a configured issuer to the first server that it is sent to, and throws if it
   * belongs to another one.
   */
  async #bindSecret(server: BoundServer): Promise<void> {
    const place = this.#secretPlace();
    if (place === undefined) return;
    const { issuer, tokenEndpoint } = server;
    const owner: SecretOwner = { issuer, tokenEndpoint };
    requireOwner(await this.#env.vault.putFirst(place, owner), server);
  }

  #secretPlace(): string | undefined {
    const { issuer, clientId = "", clientSecret } = this.#config;
    if (clientSecret === undefined || issuer !== undefined) return undefined;
    return `secret/${placeName(this.id, this.serverUrl, clientId)}`;
  }
}

type SecretOwner = Pick<BoundServer, "issuer" | "tokenEndpoint">;

function requireOwner(owner: SecretOwner, server: BoundServer): void {
  if (!isSameServer(owner, server))
    throw new GrantRefused(
      `names another authorization server (${server.issuer}) than the one that has \`clientSecret\`: set \`issuer\``,
    );
}

function boundServer({ issuer, tokenEndpoint, revocationEndpoint, resource }: BoundServer): BoundServer {
  return { issuer, tokenEndpoint, revocationEndpoint, resource };
}

function isSameServer(one: SecretOwner, other: SecretOwner): boolean {
  return (
    one.issuer === other.issuer &&
    endpointPlace(one.issuer, one.tokenEndpoint) === endpointPlace(other.issuer, other.tokenEndpoint)
  );
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

interface RegisteredLogin {
  readonly login: ServerLogin;
  readonly vault: Vault;
}

/** Contains the logins of all owners. IDs of different owners may be equal, so a login is found in its own vault. */
export class LoginRegistry {
  readonly #logins = new Map<ServerLogin, Vault>();

  add(login: ServerLogin, vault: Vault): void {
    this.#logins.set(login, vault);
  }

  remove(login: ServerLogin): void {
    this.#logins.delete(login);
  }

  get all(): readonly ServerLogin[] {
    return [...this.#logins.keys()];
  }

  /** Does not invalidate the ticket. */
  async invitation(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    const found = await this.#find<Invitation>("invitation/", ticket);
    return found && { login: found.login, invitation: found.value };
  }

  /** Invalidates the ticket. */
  async accept(ticket: string): Promise<{ login: ServerLogin; invitation: Invitation } | undefined> {
    const found = await this.#find<Invitation>("invitation/", ticket);
    const invitation = await found?.vault.take<Invitation>(`invitation/${ticket}`);
    return found && invitation && { login: found.login, invitation };
  }

  /** Finds the flow of a redirect. `secretsFor` returns the secrets that the browser has for this state and login. */
  async returned(
    state: string,
    secretsFor: (login: ServerLogin) => readonly string[],
  ): Promise<{ login: ServerLogin; flow: Flow } | "other browser" | undefined> {
    const found = await this.#find<Flow>("flow/", state);
    if (found === undefined) return undefined;
    if (!isStartedBy(found.value, secretsFor(found.login))) return "other browser";
    const flow = await found.vault.take<Flow>(`flow/${state}`);
    return flow && { login: found.login, flow };
  }

  async #find<Value extends Invitation>(
    place: "invitation/" | "flow/",
    secret: string,
  ): Promise<(RegisteredLogin & { readonly value: Value }) | undefined> {
    if (!/^[\w-]{20,64}$/.test(secret)) return undefined;
    for (const [login, vault] of this.#logins) {
      const value = await vault.get<Value>(`${place}${secret}`);
      if (value?.login === login.id) return { login, vault, value };
    }
    return undefined;
  }
}
