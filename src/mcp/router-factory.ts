/**
 * Creates the router of a session or client group over the current targets of one backend.
 */

import { createIdSource } from "../base/ids.ts";
import type { HeaderList } from "../http/headers.ts";
import { find, slice } from "../json/json-text.ts";
import { AggregateRouter } from "./aggregation/aggregate-router.ts";
import { sharedInterceptors, singleTargetInterceptors } from "./aggregation/interceptors.ts";
import { GATEWAY_INFO } from "./aggregation/merge-responses.ts";
import { type AddUpstream, type Router, SingleRouter } from "./aggregation/router.ts";
import { SharedConnection, SharedUpstream2026 } from "./aggregation/shared-connection.ts";
import { SearchRouter } from "./aggregation/tool-search.ts";
import type { BackendState } from "./backend-state.ts";
import { LoginUpstream } from "./logins/login-upstream.ts";
import type { Interceptor } from "./protocol/call.ts";
import type { ClientRequest } from "./protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LATEST_2026,
  type McpProtocol,
  PROTOCOL_VERSION,
} from "./protocol/protocol-version.ts";
import { createRetryRelays, type RetryRelays } from "./replicas/retry-relay.ts";
import type { SessionReplication } from "./replicas/session-peers.ts";
import type { ClientTasks, TaskRecords } from "./replicas/task-records.ts";
import { EarlyUpstream } from "./server-side/early-upstream.ts";
import { KnownDefinitions } from "./server-side/known-definitions.ts";
import type { ConnectionOptions } from "./server-side/server-connection.ts";
import type { Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import { type Upstream, type UpstreamListener, UpstreamWrapper } from "./server-side/upstream.ts";
import { Upstream2025 } from "./server-side/upstream-2025.ts";
import { type ClientIdentity, Upstream2026 } from "./server-side/upstream-2026.ts";
import type { ClientGroup } from "./session/client-group.ts";
import type { Session } from "./session/session.ts";
import type { SessionStore } from "./session/session-store.ts";
import { ToolUpstream } from "./tools/tool-upstream.ts";

export class RouterFactory {
  readonly #state: BackendState;
  readonly #sessions: SessionStore;
  readonly #tasks: TaskRecords;
  readonly #relays: RetryRelays;
  readonly #definitions: KnownDefinitions;
  readonly #ids = createIdSource();
  readonly #connectionOptions = new Map<Target, ConnectionOptions>();
  readonly #sharedServers = new Map<Target, SharedConnection>();

  constructor(state: BackendState, sessions: SessionStore, tasks: TaskRecords, replication: SessionReplication) {
    this.#state = state;
    this.#sessions = sessions;
    this.#tasks = tasks;
    const { name, clock, logger, store, signingKey } = state.services;
    this.#definitions = new KnownDefinitions({ backend: name, clock, logger, store, key: signingKey });
    this.#relays = createRetryRelays(
      { ...replication, requestTimeoutMs: () => state.config.requestTimeout },
      state.services.name,
    );
  }

  get suspendedCalls(): number {
    return this.#relays.suspendedCalls;
  }

  for2025(session: Session, initialize: ClientRequest, headers: HeaderList): Router {
    // Targets that a reload adds get these headers.
    const kept = this.#state.wantsHeaders ? headers : undefined;
    const version = String(initialize.params.protocolVersion);
    const make = (target: Target, from: HeaderList | undefined): Upstream =>
      this.#loggedIn(target, session, "2025", version, session, (own, link) =>
        this.#offered(target, own, (user) =>
          target.config.shared
            ? this.#shared(target).addUpstream(user, version)
            : this.#early(
                target,
                session,
                initialize,
                user,
                (own) => new Upstream2025(target, link, initialize, own, from),
              ),
        ),
      );
    const late: AddUpstream = (target, before) => {
      const upstream = make(target, kept);
      const own = unwrapUpstream(upstream);
      if (own instanceof Upstream2025) own.join(before && unwrapUpstream(before));
      else upstream.open(() => undefined);
      return upstream;
    };
    const upstreams = this.#state.targets.map((target) => make(target, headers));
    const tasks = this.#tasks.client(session.owner ?? `session:${session.id}`);
    return this.#router(upstreams, "2025", tasks, session.peers.settings, late, (upstream) =>
      session.arrived(upstream),
    );
  }

  for2026(group: ClientGroup, identity: ClientIdentity, headers: HeaderList): Router {
    const { clock } = this.#state.services;
    const token = (): string => this.#ids.hex(16);
    const startWaitMs = (): number => this.#state.config.startWait;
    const upstreams = this.#state.targets.map((target) => {
      const relay = this.#relays.relay(target, group.owner);
      return this.#loggedIn(target, group, "2026", LATEST_2026, group, (own, link) =>
        this.#offered(target, own, (user) =>
          target.config.shared
            ? new SharedUpstream2026(this.#shared(target), { clock, token, relay }, user)
            : new Upstream2026(target, { link, clock, token, relay, startWaitMs }, identity, user, headers),
        ),
      );
    });
    return this.#router(upstreams, "2026", this.#tasks.client(group.owner), undefined, neverLate, () => undefined);
  }

  /** Forgets a removed target and returns its shared connection, which the caller must end. */
  forget(target: Target): SharedConnection | undefined {
    this.#connectionOptions.delete(target);
    const server = this.#sharedServers.get(target);
    this.#sharedServers.delete(target);
    return server;
  }

  #router(
    upstreams: readonly Upstream[],
    protocol: McpProtocol,
    tasks: ClientTasks,
    settings: Interceptor | undefined,
    late: AddUpstream,
    arrived: (upstream: Upstream) => void,
  ): Router {
    const [only] = upstreams;
    const { names } = this.#state;
    const { clock, logger } = this.#state.services;
    const failureMode = (): McpConfig["failureMode"] => this.#state.config.failureMode;
    const startWaitMs = (): number => this.#state.config.startWait;
    const interceptors = sharedInterceptors(settings);
    const options = { names, failureMode, protocol, late, clock, logger, startWaitMs, interceptors, arrived };
    const router =
      only && upstreams.length === 1 && !names.isPrefixed
        ? new SingleRouter(only, names, late, singleTargetInterceptors(interceptors, tasks))
        : new AggregateRouter(upstreams, options);
    return this.#state.config.toolMode === "search" ? new SearchRouter(router, protocol) : router;
  }

  /**
   * Only processes of one session use stored definitions: what other servers list can depend on the headers of a
   * request. With one server or `failClosed`, `initialize` reports that a server cannot start.
   */
  #early(
    target: Target,
    session: Session,
    initialize: ClientRequest,
    user: UpstreamListener,
    make: (user: UpstreamListener) => Upstream,
  ): Upstream {
    const { config, names, targets } = this.#state;
    const isOneOfSeveral = targets.length > 1 || names.isPrefixed;
    if (
      !isOneOfSeveral ||
      config.failureMode === "failClosed" ||
      target.config.stdio === undefined ||
      session.isResumed
    )
      return make(user);
    const params = find(initialize.text, 0, "params");
    const known = this.#definitions.of(target, session.owner, params ? slice(initialize.text, params) : "{}");
    return new EarlyUpstream(known, user, make);
  }

  #offered(target: Target, user: UpstreamListener, make: (user: UpstreamListener) => Upstream): Upstream {
    const tools = this.#state.tools.of(target);
    return tools === undefined
      ? make(user)
      : new ToolUpstream({ ...tools, clock: this.#state.services.clock }, user, make);
  }

  #loggedIn(
    target: Target,
    { owner, client }: { readonly owner: string | undefined; readonly client: string },
    protocol: McpProtocol,
    version: string,
    user: UpstreamListener,
    make: (user: UpstreamListener, link: ConnectionOptions) => Upstream,
  ): Upstream {
    const login = this.#state.logins.get(target.name);
    const link = target.config.stdio === undefined ? this.connectionOptions(target) : this.#childLink(target, client);
    if (login === undefined) return make(user, link);
    // The route requires authentication, so a request without an identity is a defect.
    if (owner === undefined) throw new Error("a target with oauth requires authenticated users");
    return new LoginUpstream({ login, principal: owner, protocol, version }, user, (own, bearer) =>
      make(own, { ...link, authorization: () => bearer.token }),
    );
  }

  #shared(target: Target): SharedConnection {
    const known = this.#sharedServers.get(target);
    if (known) return known;
    const server = new SharedConnection(target, {
      link: this.connectionOptions(target),
      nowMs: () => this.#state.services.clock.monotonicMs(),
      ended: (ended, reason) => {
        this.#sharedServers.delete(target);
        this.#sessions.sharedEnded(ended, reason);
      },
    });
    this.#sharedServers.set(target, server);
    this.#sessions.addShared(server, target.name);
    return server;
  }

  #childLink(target: Target, client: string): ConnectionOptions {
    return {
      ...this.connectionOptions(target),
      connect: (handlers, opened, refused) => target.connect(handlers, opened, refused, client),
    };
  }

  connectionOptions(target: Target): ConnectionOptions {
    const known = this.#connectionOptions.get(target);
    if (known) return known;
    const env: ConnectionOptions = {
      clock: this.#state.services.clock,
      logger: this.#state.services.logger,
      requestTimeoutMs: () => this.#state.config.requestTimeout,
      up: () => {
        target.failures.over();
        target.exceededStartWait = false;
      },
      forwarded: (headers) => target.forwarded(headers),
      connect: (handlers, opened, refused) => target.connect(handlers, opened, refused, undefined),
    };
    this.#connectionOptions.set(target, env);
    return env;
  }
}

export function unwrapUpstream(upstream: Upstream): Upstream {
  return upstream instanceof UpstreamWrapper ? unwrapUpstream(upstream.inner) : upstream;
}

/** A reload replaces client groups instead of changing them. */
function neverLate(): never {
  throw new Error("a client group does not change its targets");
}

export function clientIdentity(request: ClientRequest): ClientIdentity {
  const meta = request.params._meta as Record<string, unknown>;
  const clientInfo = JSON.stringify(meta[CLIENT_INFO] ?? GATEWAY_INFO);
  const capabilities = JSON.stringify(meta[CLIENT_CAPABILITIES] ?? {});
  const envelope = `${JSON.stringify(PROTOCOL_VERSION)}:"${LATEST_2026}",${JSON.stringify(CLIENT_INFO)}:${clientInfo},${JSON.stringify(CLIENT_CAPABILITIES)}:${capabilities}`;
  return { envelope, clientInfo, capabilities };
}
