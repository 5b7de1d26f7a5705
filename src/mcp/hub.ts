/**
 * Everything of one MCP backend that lives longer than a request: its targets, its sessions, its children. It is
 * kept over reloads: settings are replaced in place, sessions go on with the targets that there are now.
 */
import type { BackendCall, BackendRun } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import type { WireTap } from "../core/wire.ts";
import type { HeaderList } from "../lib/http/headers.ts";
import type { TlsOptions } from "../lib/http/http-client.ts";
import type { Logger } from "../lib/log/logger.ts";
import type { Clock } from "../lib/process/clock.ts";
import type { Task, Tasks } from "../lib/process/tasks.ts";
import { createIdSource } from "../lib/text/ids.ts";
import type { CallReport } from "./clients/call-outcome.ts";
import type { Lane } from "./clients/lane.ts";
import { ModernCall } from "./clients/modern-call.ts";
import { endpointOf } from "./clients/old-transport.ts";
import type { Session } from "./clients/session.ts";
import { digest, laneOwnerOf, ownerOf } from "./clients/session-owner.ts";
import { SessionStore } from "./clients/session-store.ts";
import { LegacyUpstream } from "./eras/legacy-upstream.ts";
import { type ClientIdentity, ModernUpstream } from "./eras/modern-upstream.ts";
import { FanOut } from "./many/fan-out.ts";
import { GATEWAY_INFO } from "./many/merge.ts";
import { ModernSeat } from "./many/modern-seat.ts";
import { createNames, type Names } from "./many/names.ts";
import { type Router, SingleRouter } from "./many/router.ts";
import { type SharedSeat, SharedServer } from "./many/shared-server.ts";
import type { LateUpstream } from "./many/target-change.ts";
import { Retirement } from "./servers/retirement.ts";
import type { LinkEnv } from "./servers/server-link.ts";
import { StartGate } from "./servers/start-gate.ts";
import { defaultConcurrentStarts, type MessageSizes, Target } from "./servers/target.ts";
import type { McpConfig } from "./servers/target-config.ts";
import type { Upstream } from "./servers/upstream.ts";
import type { Environment } from "./transports/child-environment.ts";
import { CLIENT_CAPABILITIES, CLIENT_INFO, type Era, LATEST_MODERN, PROTOCOL_VERSION } from "./wire/era.ts";
import type { ClientRequest } from "./wire/json-rpc.ts";

export interface HubEnv {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly tls: TlsOptions | undefined;
  readonly environment: Environment;
}

export class Hub {
  readonly name: string;
  targets: readonly Target[];
  /** Called when it has closed. */
  closed: (() => void) | undefined = undefined;
  readonly sessions: SessionStore;
  readonly #gate: StartGate;
  readonly #task: Task;
  readonly #env: HubEnv;
  names: Names;
  readonly #retirement: Retirement;
  /** Targets of earlier configurations, until nothing of them is in use. */
  #leftTargets: Target[] = [];
  readonly #ids = createIdSource();
  readonly #linkEnvs = new Map<Target, LinkEnv>();
  readonly #sharedServers = new Map<Target, SharedServer>();
  /** Headers of clients that any target is told. */
  #forwarded: readonly string[];
  #isClosed = false;
  #requestTimeoutMs: number;
  #failureMode: McpConfig["failureMode"];
  #sizes: MessageSizes;

  constructor(config: McpConfig, env: HubEnv) {
    this.#env = env;
    this.name = env.name;
    this.#task = env.tasks.start("mcp backend", env.name, () => ({
      children: this.#gate.living,
      sessions: this.sessions.size,
      ...this.#failures(),
    }));
    this.#requestTimeoutMs = config.requestTimeout;
    this.#failureMode = config.failureMode;
    this.#sizes = config;
    this.#forwarded = forwardedBy(config);
    this.names = createNames(
      config.targets.map(({ name }) => name),
      config.prefixMode,
    );
    this.#gate = new StartGate(gateLimits(config), env.clock, () => this.sessions.makeRoom());
    this.#retirement = new Retirement(env.clock, () => this.#closeLeftTargets());
    this.sessions = new SessionStore(storeSettings(config), {
      clock: env.clock,
      logger: env.logger,
      ids: this.#ids,
      task: this.#task,
      retirement: this.#retirement,
    });
    this.targets = config.targets.map((target) => this.#target(target, env.tls));
  }

  get children(): number {
    return this.#gate.living;
  }

  /** Another configuration serves: sessions and children whose definition is the same go on, calls are finished. */
  configure(config: McpConfig, tls: TlsOptions | undefined): void {
    this.#requestTimeoutMs = config.requestTimeout;
    this.#failureMode = config.failureMode;
    this.#sizes = config;
    this.#forwarded = forwardedBy(config);
    this.#gate.limits = gateLimits(config);
    this.sessions.settings = storeSettings(config);
    const before = this.targets;
    const targets = config.targets.map(
      (target) => before.find((one) => one.isDefinedBy(target, tls)) ?? this.#target(target, tls),
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
    const session = this.sessions.create(ownerOf(exchange));
    const router = this.#legacyRouter(session, request, exchange.request.headers);
    return session.open(router, request, sink, report, exchange.trace && sink);
  }

  /** Opens the event stream of the old transport. Throws `overloaded`. */
  openStream(exchange: Exchange, sink: BackendCall): BackendRun {
    const session = this.sessions.create(ownerOf(exchange));
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
    session.openOn(this.#legacyRouter(session, request, headers), request, report, wire);
  }

  /** Serves a request of the modern era. Throws `overloaded`. */
  serveModern(request: ClientRequest, exchange: Exchange, sink: BackendCall, report: CallReport): BackendRun {
    const lane = this.#lane(request, exchange);
    const call = new ModernCall(request, exchange.request.headers, sink, exchange.trace && sink, {
      report,
      nowMs: () => this.#env.clock.monotonicMs(),
      ended: (ended) => {
        this.sessions.noBeatFor(ended);
        lane.count(-1);
      },
    });
    lane.count(1);
    this.sessions.beatFor(call);
    call.running = lane.run(call, exchange.mcpAccess);
    return call;
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
    const { clock, logger, environment } = this.#env;
    return new Target(config, { clock, logger, environment, tls, gate: this.#gate, sizes: () => this.#sizes });
  }

  #closeLeftTargets(): void {
    for (const target of this.#leftTargets) target.close();
    this.#leftTargets = [];
  }

  #leave(target: Target): void {
    this.#leftTargets.push(target);
    this.#linkEnvs.delete(target);
    const server = this.#sharedServers.get(target);
    if (server === undefined) return;
    this.#sharedServers.delete(target);
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
    const lane = this.sessions.createLane(key, owner);
    const { clock } = this.#env;
    const token = (): string => this.#ids.hex(16);
    const upstreams = this.targets.map((target) => {
      if (target.config.shared) return new ModernSeat(this.#shared(target), clock, token);
      return new ModernUpstream(
        target,
        { link: this.#linkEnv(target), clock, token },
        identity,
        lane,
        exchange.request.headers,
      );
    });
    lane.open(
      this.#router(upstreams, "modern", neverLate, () => undefined),
      () => {
        if (isModern()) this.sessions.alsoKnownAs(lane, owner);
      },
    );
    return lane;
  }

  #legacyRouter(session: Session, initialize: ClientRequest, headers: HeaderList): Router {
    const version = String(initialize.params.protocolVersion);
    // For servers that join later; only remote ones get any of them.
    const kept = this.wantsHeaders ? headers : undefined;
    const seat = (target: Target): SharedSeat => this.#shared(target).seat(session, version);
    const own = (target: Target, from: HeaderList | undefined): LegacyUpstream =>
      new LegacyUpstream(target, this.#linkEnv(target), initialize, session, from);
    const late: LateUpstream = (target, before) => {
      const upstream = target.config.shared ? seat(target) : own(target, kept);
      if (upstream instanceof LegacyUpstream) upstream.join(before);
      else upstream.open(() => undefined);
      return upstream;
    };
    const upstreams = this.targets.map((target) => (target.config.shared ? seat(target) : own(target, headers)));
    return this.#router(upstreams, "legacy", late, (upstream) => session.arrived(upstream));
  }

  /** Brought up by the first who needs it. */
  #shared(target: Target): SharedServer {
    const known = this.#sharedServers.get(target);
    if (known) return known;
    const server = new SharedServer(target, {
      link: this.#linkEnv(target),
      nowMs: () => this.#env.clock.monotonicMs(),
      ended: (ended, reason) => {
        this.#sharedServers.delete(target);
        this.sessions.sharedEnded(ended, reason);
      },
    });
    this.#sharedServers.set(target, server);
    this.sessions.addShared(server, target.name);
    return server;
  }

  /** A session that never came about has no task of its own: what its servers said is told here. */
  #failures(): Record<string, unknown> {
    const failures = this.targets.flatMap(({ name, failures: of }) => {
      const last = of.last();
      return last ? [{ target: name, ...last }] : [];
    });
    return failures.length === 0 ? {} : { failures };
  }

  #router(upstreams: readonly Upstream[], era: Era, late: LateUpstream, arrived: (upstream: Upstream) => void): Router {
    const [only] = upstreams;
    if (only && upstreams.length === 1 && !this.names.isPrefixed) return new SingleRouter(only, this.names, late);
    const { clock } = this.#env;
    const failureMode = (): McpConfig["failureMode"] => this.#failureMode;
    return new FanOut(upstreams, { names: this.names, failureMode, era, late, clock, arrived });
  }

  /** The same for all sessions: it is made once. */
  #linkEnv(target: Target): LinkEnv {
    const known = this.#linkEnvs.get(target);
    if (known) return known;
    const env: LinkEnv = {
      clock: this.#env.clock,
      logger: this.#env.logger,
      targetName: target.name,
      requestTimeoutMs: () => this.#requestTimeoutMs,
      up: () => target.failures.over(),
      forwarded: (headers) => target.forwarded(headers),
      connect: (handlers, opened, refused) => target.connect(handlers, opened, refused),
    };
    this.#linkEnvs.set(target, env);
    return env;
  }
}

/** Lanes are replaced, not changed. */
function neverLate(): never {
  throw new Error("a lane does not change its targets");
}

function identityOf(request: ClientRequest): ClientIdentity {
  const meta = request.params._meta as Record<string, unknown>;
  const clientInfo = JSON.stringify(meta[CLIENT_INFO] ?? GATEWAY_INFO);
  const capabilities = JSON.stringify(meta[CLIENT_CAPABILITIES] ?? {});
  const envelope = `${JSON.stringify(PROTOCOL_VERSION)}:"${LATEST_MODERN}",${JSON.stringify(CLIENT_INFO)}:${clientInfo},${JSON.stringify(CLIENT_CAPABILITIES)}:${capabilities}`;
  return { envelope, clientInfo, capabilities };
}

function forwardedBy({ targets }: McpConfig): readonly string[] {
  return targets.flatMap(({ mcp, sse }) => (mcp ?? sse)?.forwardHeaders ?? []);
}

function gateLimits(config: McpConfig) {
  return {
    maxChildren: config.maxChildren,
    maxConcurrentStarts: config.maxConcurrentStarts ?? defaultConcurrentStarts(),
  };
}

function storeSettings(config: McpConfig) {
  const { maxSessions, sessionIdleTtl, parkAfter } = config;
  return { maxSessions, sessionIdleTtlMs: sessionIdleTtl, parkAfterMs: parkAfter };
}
