/**
 * Everything of one MCP backend that lives longer than a request: its targets, its sessions, its children. It is
 * kept over reloads: settings are replaced in place, sessions go on with the targets that there are now.
 */

import type { Clock } from "../base/clock.ts";
import { createIdSource } from "../base/ids.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Task, Tasks } from "../base/tasks.ts";
import type { BackendCall, BackendRun } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import type { WireTap } from "../core/wire.ts";
import type { Fetch } from "../http/fetch.ts";
import type { HeaderList } from "../http/headers.ts";
import type { TlsOptions } from "../http/http-client.ts";
import { find, slice } from "../json/json-text.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { SigningKey } from "../store/signing-key.ts";
import type { Store } from "../store/store.ts";
import { createNames, type Names } from "./aggregation/names.ts";
import type { Router } from "./aggregation/router.ts";
import { endpointOf } from "./client-side/http-request.ts";
import { type AloneEnv, asModernRequest, serveAlone } from "./client-side/sessionless-call.ts";
import type { ServerLogin } from "./logins/server-login.ts";
import type { ClientRequest } from "./protocol/json-rpc.ts";
import { TaskRecords } from "./replicas/task-records.ts";
import { turnRelays } from "./replicas/turn-relay.ts";
import { identityOf, Routers } from "./router-factory.ts";
import { ProcessLimiter } from "./server-side/process-pool.ts";
import { defaultConcurrentStarts, Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import { ownsProcess, UpstreamDrain } from "./server-side/upstream.ts";
import type { CallReport } from "./session/call-outcome.ts";
import { digest, type Lane, laneOwnerOf, ownerOf } from "./session/client-group.ts";
import type { Session } from "./session/session.ts";
import { openOnStream, openSession } from "./session/session-opening.ts";
import { SessionRecords } from "./session/session-records.ts";
import { type SessionClient, SessionStore } from "./session/session-store.ts";
import { Resumption } from "./session-resumption.ts";
import type { Inspection } from "./tools/inspect-tools.ts";
import { type ToolProducts, ToolsOfTargets } from "./tools/tool-settings.ts";
import type { Environment } from "./transports/stdio-transport.ts";

export class Hub {
  readonly name: string;
  targets: readonly Target[];
  /** Called when it has closed. */
  closed: (() => void) | undefined = undefined;
  readonly sessions: SessionStore;
  readonly resumption: Resumption;
  readonly #limiter: ProcessLimiter;
  readonly #task: Task;
  readonly #env: HubEnv;
  names: Names;
  readonly #retirement: UpstreamDrain;
  /** Targets of earlier configurations, until nothing of them is in use. */
  #leftTargets: Target[] = [];
  readonly #ids = createIdSource();
  readonly #routers: Routers;
  /** Headers of clients that any target is told. */
  #forwarded: readonly string[];
  #isClosed = false;
  #settings: McpConfig;
  readonly #tools: ToolsOfTargets;
  #logins: HubParts["logins"];
  #relaysLogin: boolean;

  constructor(config: McpConfig, { products, logins, relaysLogin }: HubParts, env: HubEnv) {
    this.#env = env;
    this.#relaysLogin = relaysLogin;
    this.#tools = new ToolsOfTargets(products, env.logger);
    this.#logins = logins;
    this.name = env.name;
    this.#task = env.tasks.start("mcp backend", env.name, () => ({
      children: this.#limiter.running,
      sessions: this.sessions.size,
      ...failuresOf(this.targets),
      ...this.#tools.report(),
    }));
    this.#settings = config;
    this.#forwarded = forwardedBy(config);
    this.names = createNames(
      config.targets.map(({ name }) => name),
      config.prefixMode,
    );
    this.#limiter = new ProcessLimiter(processLimits(config), env.clock, (client, isOwn) =>
      this.#makeRoom(client, isOwn),
    );
    this.#retirement = new UpstreamDrain(env.clock, () => this.#closeLeftTargets());
    const records = new SessionRecords({
      backend: env.name,
      clock: env.clock,
      logger: env.logger,
      store: env.store,
      key: env.signingKey,
      idleTtlMs: () => this.sessions.settings.sessionIdleTtlMs,
    });
    this.sessions = new SessionStore(storeSettings(config), {
      clock: env.clock,
      logger: env.logger,
      ids: this.#ids,
      task: this.#task,
      retirement: this.#retirement,
      records,
      memory: env.memory,
    });
    this.resumption = new Resumption({
      sessions: this.sessions,
      records,
      router: (session, initialize, headers) => this.#legacyRouter(session, initialize, headers),
    });
    this.targets = config.targets.map((target) => this.#target(target, env.tls));
    const tasks = new TaskRecords({
      backend: env.name,
      clock: env.clock,
      logger: env.logger,
      store: env.store,
      key: env.signingKey,
    });
    this.#routers = new Routers({
      clock: env.clock,
      logger: env.logger,
      targets: () => this.targets,
      names: () => this.names,
      settings: () => this.#settings,
      toolsOf: (target) => this.#tools.of(target),
      loginOf: (target) => this.#logins.get(target.name),
      relay: turnRelays({ ...records.peers, requestTimeoutMs: () => this.#settings.requestTimeout }, env.name),
      tasksOf: (owner) => tasks.client(owner),
      token: () => this.#ids.hex(16),
      sharedStarted: (server, name) => this.sessions.addShared(server, name),
      sharedEnded: (server, reason) => this.sessions.sharedEnded(server, reason),
    });
  }

  get children(): number {
    return this.#limiter.running;
  }

  /** Another configuration serves: sessions and children whose definition is the same go on, calls are finished. */
  configure(config: McpConfig, { products, logins, relaysLogin }: HubParts, tls: TlsOptions | undefined): void {
    this.#relaysLogin = relaysLogin;
    this.#settings = config;
    this.#logins = logins;
    const hasSameTools = this.#tools.configure(products);
    this.#forwarded = forwardedBy(config);
    this.#limiter.limits = processLimits(config);
    this.sessions.settings = storeSettings(config);
    const before = this.targets;
    const targets = config.targets.map(
      (target) =>
        before.find((one) => one.isDefinedBy(target, tls) && hasSameTools(target.name)) ?? this.#target(target, tls),
    );
    const names = createNames(
      targets.map(({ name }) => name),
      config.prefixMode,
    );
    const isSame = targets.length === before.length && targets.every((target, i) => target === before[i]);
    if (isSame && names.isPrefixed === this.names.isPrefixed) return;
    this.targets = targets;
    this.names = names;
    this.sessions.change({ targets, names });
    for (const target of before) if (!targets.includes(target)) this.#leave(target);
    if (this.#retirement.isEmpty) this.#closeLeftTargets();
  }

  /** The configuration serves: children that are to wait for sessions are started. */
  serve(config: McpConfig, parts: HubParts, tls: TlsOptions | undefined): void {
    this.configure(config, parts, tls);
    for (const target of this.targets) target.warmUp();
  }

  /** For a child. Nobody uses a spare: it goes first. A session whose processes are parked would free nothing. */
  #makeRoom(client: string | undefined, isOwn: boolean): boolean {
    if (client !== undefined && isOwn) return this.sessions.makeRoomWithin(client, ownsProcess);
    return this.targets.some((target) => target.dropSpare()) || this.sessions.makeRoom(ownsProcess, client);
  }

  /** Whose session it is. */
  clientOf(exchange: Exchange): SessionClient {
    const headerBytes = this.wantsHeaders ? exchange.request.headers.chars : 0;
    return { client: exchange.client, owner: ownerOf(exchange), headerBytes };
  }

  /** The backend is gone from the configuration: requests that run are answered, then everything is closed. */
  retire(): Promise<void> {
    this.sessions.retire();
    const { sessions } = this;
    return new Promise((resolve) => {
      this.#retirement.add({
        get pendingCalls() {
          return sessions.busy;
        },
        sweep: () => undefined,
        close: () => this.#close().then(resolve),
      });
    });
  }

  /** Whether any target wants headers of the client's requests. */
  get wantsHeaders(): boolean {
    return this.targets.some(({ config }) => config.stdio === undefined);
  }

  /** Opens a session for a client's `initialize`. Throws `overloaded`. */
  initialize(request: ClientRequest, exchange: Exchange, sink: BackendCall, report: CallReport): BackendRun {
    const params = find(request.text, 0, "params");
    const session = this.sessions.create(this.clientOf(exchange), params ? slice(request.text, params) : "{}");
    const router = this.#legacyRouter(session, request, exchange.request.headers);
    return openSession(session, router, request, sink, report, exchange.isWatched ? sink : undefined);
  }

  /** Opens the event stream of the old transport. Throws `overloaded`. */
  openStream(exchange: Exchange, sink: BackendCall): BackendRun {
    const session = this.sessions.create(this.clientOf(exchange));
    return session.openStream(sink, endpointOf(exchange.request, session));
  }

  /** Brings up the servers of a client of the old transport. */
  initializeStream(
    session: Session,
    request: ClientRequest,
    headers: HeaderList,
    report: CallReport,
    wire: WireTap | undefined,
  ): void {
    openOnStream(session, this.#legacyRouter(session, request, headers), request, report, wire);
  }

  /** Serves a request of the modern era. Throws `overloaded`. */
  serveModern(request: ClientRequest, exchange: Exchange, sink: BackendCall, report: CallReport): BackendRun {
    return serveAlone(
      this.#lane(request, exchange),
      { request, sent: request },
      exchange,
      sink,
      this.#aloneEnv(report),
    );
  }

  /** Serves a request of the legacy era without a session. Throws `overloaded`. */
  serveStateless(request: ClientRequest, exchange: Exchange, sink: BackendCall, report: CallReport): BackendRun {
    const sent = asModernRequest(request);
    return serveAlone(this.#lane(sent, exchange), { request, sent }, exchange, sink, this.#aloneEnv(report));
  }

  #aloneEnv(report: CallReport): AloneEnv {
    return { report, sessions: this.sessions, nowMs: () => this.#env.clock.monotonicMs() };
  }

  /** For those who ask servers for their tools outside of any session. */
  inspection(): Inspection {
    return { targets: this.targets, tools: this.#tools, link: (target) => this.#routers.connectionOptions(target) };
  }

  async close(): Promise<void> {
    await this.#close();
    await this.#retirement.close();
    this.#closeLeftTargets();
  }

  async #close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.sessions.close();
    for (const target of this.targets) target.close();
    this.#task.end();
    this.closed?.();
  }

  #target(config: McpConfig["targets"][number], tls: TlsOptions | undefined): Target {
    return new Target(config, {
      ...this.#env,
      tls,
      limiter: this.#limiter,
      sizes: () => this.#settings,
      messages: this.#env.memory.messages,
      relaysLogin: () => this.#relaysLogin,
    });
  }

  #closeLeftTargets(): void {
    for (const target of this.#leftTargets) target.close();
    this.#leftTargets = [];
  }

  #leave(target: Target): void {
    this.#leftTargets.push(target);
    target.leave();
    this.#tools.forget(target);
    const server = this.#routers.forget(target);
    if (server === undefined) return;
    this.#retirement.add({
      get pendingCalls() {
        return server.isIdle ? 0 : 1;
      },
      sweep: () => undefined,
      close: async () => server.end("its definition changed"),
    });
  }

  /**
   * Who shows the same credential shares a lane; who shows none, with whom calls from the same address. A legacy
   * server was told who its client is and what it can do, so there these count too.
   */
  #lane(request: ClientRequest, exchange: Exchange): Lane {
    const owner = laneOwnerOf(exchange, this.#forwarded);
    const identity = identityOf(request);
    const isModern = (): boolean =>
      this.targets.every(({ config, speaksModern }) => config.shared || speaksModern === true);
    const key = isModern() ? owner : `${owner}\n${digest(`${identity.clientInfo}\n${identity.capabilities}`)}`;
    const known = this.sessions.lane(key);
    if (known) return known;
    const lane = this.sessions.createLane(key, owner, this.clientOf(exchange), identity.envelope.length);
    lane.open(this.#routers.modern(lane, identity, exchange.request.headers), () => {
      if (isModern()) this.sessions.alsoKnownAs(lane, owner);
    });
    return lane;
  }

  /** For servers that join later headers are kept; only remote ones get any of them. */
  #legacyRouter(session: Session, initialize: ClientRequest, headers: HeaderList): Router {
    return this.#routers.legacy(session, initialize, headers, this.wantsHeaders ? headers : undefined);
  }
}

/** What is compiled of the configuration, by the names of targets. */
export interface HubParts {
  readonly products: ToolProducts;
  readonly logins: ReadonlyMap<string, ServerLogin>;
  /** The only server's wish for a login reaches its clients, who log in themselves. */
  readonly relaysLogin: boolean;
}

export interface HubEnv {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly memory: MemoryBudget;
  readonly tls: TlsOptions | undefined;
  /** A document of a cluster names the servers. */
  readonly isConfined?: boolean | undefined;
  readonly environment: Environment;
  readonly store: Store;
  readonly signingKey: SigningKey;
  readonly fetch: Fetch;
}

/** Headers of clients that any target is told. */
export function forwardedBy({ targets }: McpConfig): readonly string[] {
  return targets.flatMap(({ mcp, sse, openapi }) => (mcp ?? sse ?? openapi)?.forwardHeaders ?? []);
}

export function processLimits(config: McpConfig) {
  const own = config.targets.filter(({ stdio, shared }) => stdio !== undefined && !shared).length;
  return {
    maxChildren: config.maxChildren,
    maxChildrenPerClient: config.maxChildrenPerClient ?? Math.max(own, Math.ceil(config.maxChildren / 2)),
    maxConcurrentStarts: config.maxConcurrentStarts ?? defaultConcurrentStarts(),
  };
}

export function storeSettings(config: McpConfig) {
  const { maxSessions, sessionIdleTtl, parkAfter } = config;
  const maxSessionsPerClient = config.maxSessionsPerClient ?? Math.ceil(maxSessions / 2);
  return { maxSessions, maxSessionsPerClient, sessionIdleTtlMs: sessionIdleTtl, parkAfterMs: parkAfter };
}

/** A session that never came about has no task of its own: what its servers said is told by the backend's. */
export function failuresOf(targets: readonly Target[]): Record<string, unknown> {
  const failures = targets.flatMap(({ name, failures: of }) => {
    const last = of.last();
    return last ? [{ target: name, ...last }] : [];
  });
  return failures.length === 0 ? {} : { failures };
}
