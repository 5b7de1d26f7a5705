/**
 * The ways from clients to the servers of one backend: makes the router of a session or lane over the targets that
 * there are now, with connections of its own or, where a target is shared, a seat at the one that all use.
 */

import type { Clock } from "../base/clock.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Logger } from "../observe/log/logger.ts";
import { AggregateRouter } from "./aggregation/aggregate-router.ts";
import { GATEWAY_INFO } from "./aggregation/merge-responses.ts";
import type { Names } from "./aggregation/names.ts";
import { type AddUpstream, type Router, SingleRouter } from "./aggregation/router.ts";
import { ModernSharedUpstream, SharedConnection } from "./aggregation/shared-connection.ts";
import { SearchRouter } from "./aggregation/tool-search.ts";
import { LoginUpstream } from "./logins/login-upstream.ts";
import type { ServerLogin } from "./logins/server-login.ts";
import type { ClientRequest } from "./protocol/json-rpc.ts";
import {
  CLIENT_CAPABILITIES,
  CLIENT_INFO,
  LATEST_MODERN,
  type McpProtocol,
  PROTOCOL_VERSION,
} from "./protocol/protocol-version.ts";
import type { ClientTasks } from "./replicas/task-records.ts";
import type { TurnRelay } from "./replicas/turn-relay.ts";
import { LegacyUpstream } from "./server-side/legacy-upstream.ts";
import { type ClientIdentity, ModernUpstream } from "./server-side/modern-upstream.ts";
import type { ConnectionOptions } from "./server-side/server-connection.ts";
import type { Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import type { Upstream, UpstreamListener } from "./server-side/upstream.ts";
import type { Lane } from "./session/client-group.ts";
import type { Session } from "./session/session.ts";
import { ToolUpstream, type ToolUpstreamEnv } from "./tools/tool-upstream.ts";

/** The backend, as its routers need it: each is asked anew, because a reload changes it. */
export interface RoutersEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  targets(): readonly Target[];
  names(): Names;
  settings(): Pick<McpConfig, "requestTimeout" | "failureMode" | "toolMode">;
  /** How the configuration changes the target's tools; undefined where it does not. */
  /** The users' logins at the target, where it wants some. */
  loginOf(target: Target): ServerLogin | undefined;
  toolsOf(target: Target): Pick<ToolUpstreamEnv, "product" | "quarantine"> | undefined;
  /** Where a client may come back to a call that waits for it; undefined without other replicas. */
  relay(target: Target, owner: string): TurnRelay | undefined;
  /** The tasks that the owner has created at the servers. */
  tasksOf(owner: string): ClientTasks;
  token(): string;
  sharedStarted(server: SharedConnection, name: string): void;
  sharedEnded(server: SharedConnection, reason: string): void;
}

export class Routers {
  readonly #env: RoutersEnv;
  readonly #connectionOptions = new Map<Target, ConnectionOptions>();
  readonly #sharedServers = new Map<Target, SharedConnection>();

  constructor(env: RoutersEnv) {
    this.#env = env;
  }

  /** `kept` are headers for servers that join later. */
  legacy(session: Session, initialize: ClientRequest, headers: HeaderList, kept: HeaderList | undefined): Router {
    const version = String(initialize.params.protocolVersion);
    const make = (target: Target, from: HeaderList | undefined): Upstream =>
      this.#loggedIn(target, session, "legacy", version, session, (own, link) =>
        this.#offered(target, own, (user) =>
          target.config.shared
            ? this.#shared(target).seat(user, version)
            : new LegacyUpstream(target, link, initialize, user, from),
        ),
      );
    const late: AddUpstream = (target, before) => {
      const upstream = make(target, kept);
      const own = bare(upstream);
      if (own instanceof LegacyUpstream) own.join(before && bare(before));
      else upstream.open(() => undefined);
      return upstream;
    };
    const upstreams = this.#env.targets().map((target) => make(target, headers));
    const tasks = this.#env.tasksOf(session.owner ?? `session:${session.id}`);
    return this.#router(upstreams, "legacy", tasks, late, (upstream) => session.arrived(upstream));
  }

  modern(lane: Lane, identity: ClientIdentity, headers: HeaderList): Router {
    const { clock } = this.#env;
    const token = (): string => this.#env.token();
    const upstreams = this.#env.targets().map((target) => {
      const relay = this.#env.relay(target, lane.owner);
      return this.#loggedIn(target, lane, "modern", LATEST_MODERN, lane, (own, link) =>
        this.#offered(target, own, (user) =>
          target.config.shared
            ? new ModernSharedUpstream(this.#shared(target), { clock, token, relay })
            : new ModernUpstream(target, { link, clock, token, relay }, identity, user, headers),
        ),
      );
    });
    return this.#router(upstreams, "modern", this.#env.tasksOf(lane.owner), neverLate, () => undefined);
  }

  /** A target is gone from the configuration. Returns the server that all shared, to be ended. */
  forget(target: Target): SharedConnection | undefined {
    this.#connectionOptions.delete(target);
    const server = this.#sharedServers.get(target);
    this.#sharedServers.delete(target);
    return server;
  }

  #router(
    upstreams: readonly Upstream[],
    era: McpProtocol,
    tasks: ClientTasks,
    late: AddUpstream,
    arrived: (upstream: Upstream) => void,
  ): Router {
    const [only] = upstreams;
    const names = this.#env.names();
    const { clock } = this.#env;
    const failureMode = (): McpConfig["failureMode"] => this.#env.settings().failureMode;
    const router =
      only && upstreams.length === 1 && !names.isPrefixed
        ? new SingleRouter(only, names, late, tasks)
        : new AggregateRouter(upstreams, { names, failureMode, era, late, clock, arrived });
    return this.#env.settings().toolMode === "search" ? new SearchRouter(router, era) : router;
  }

  /** The target with the tools that the configuration makes of its own. */
  #offered(target: Target, user: UpstreamListener, make: (user: UpstreamListener) => Upstream): Upstream {
    const tools = this.#env.toolsOf(target);
    return tools === undefined ? make(user) : new ToolUpstream({ ...tools, clock: this.#env.clock }, user, make);
  }

  /** With the login of the user at the server, where the server wants one. */
  #loggedIn(
    target: Target,
    { owner, client }: { readonly owner: string | undefined; readonly client: string },
    era: McpProtocol,
    version: string,
    user: UpstreamListener,
    make: (user: UpstreamListener, link: ConnectionOptions) => Upstream,
  ): Upstream {
    const login = this.#env.loginOf(target);
    const link = target.config.stdio === undefined ? this.connectionOptions(target) : this.#childLink(target, client);
    if (login === undefined) return make(user, link);
    // The route has an authentication policy: whoever comes here without an identity is a defect, and gets nothing.
    if (owner === undefined) throw new Error("a target with oauth needs users that are identified");
    return new LoginUpstream({ login, principal: owner, era, version }, user, (own, bearer) =>
      make(own, { ...link, authorization: () => bearer.token }),
    );
  }

  /** Brought up by the first who needs it. */
  #shared(target: Target): SharedConnection {
    const known = this.#sharedServers.get(target);
    if (known) return known;
    const server = new SharedConnection(target, {
      link: this.connectionOptions(target),
      nowMs: () => this.#env.clock.monotonicMs(),
      ended: (ended, reason) => {
        this.#sharedServers.delete(target);
        this.#env.sharedEnded(ended, reason);
      },
    });
    this.#sharedServers.set(target, server);
    this.#env.sharedStarted(server, target.name);
    return server;
  }

  /** A child process is counted as that of the client whose session starts it. */
  #childLink(target: Target, client: string): ConnectionOptions {
    return {
      ...this.connectionOptions(target),
      connect: (handlers, opened, refused) => target.connect(handlers, opened, refused, client),
    };
  }

  /** The same for all sessions: it is made once. */
  connectionOptions(target: Target): ConnectionOptions {
    const known = this.#connectionOptions.get(target);
    if (known) return known;
    const env: ConnectionOptions = {
      clock: this.#env.clock,
      logger: this.#env.logger,
      targetName: target.name,
      requestTimeoutMs: () => this.#env.settings().requestTimeout,
      up: () => target.failures.over(),
      forwarded: (headers) => target.forwarded(headers),
      connect: (handlers, opened, refused) => target.connect(handlers, opened, refused, undefined),
    };
    this.#connectionOptions.set(target, env);
    return env;
  }
}

/** Without what the configuration puts around it. */
export function bare(upstream: Upstream): Upstream {
  return upstream instanceof ToolUpstream || upstream instanceof LoginUpstream ? bare(upstream.inner) : upstream;
}

/** Lanes are replaced, not changed. */
function neverLate(): never {
  throw new Error("a lane does not change its targets");
}

export function identityOf(request: ClientRequest): ClientIdentity {
  const meta = request.params._meta as Record<string, unknown>;
  const clientInfo = JSON.stringify(meta[CLIENT_INFO] ?? GATEWAY_INFO);
  const capabilities = JSON.stringify(meta[CLIENT_CAPABILITIES] ?? {});
  const envelope = `${JSON.stringify(PROTOCOL_VERSION)}:"${LATEST_MODERN}",${JSON.stringify(CLIENT_INFO)}:${clientInfo},${JSON.stringify(CLIENT_CAPABILITIES)}:${capabilities}`;
  return { envelope, clientInfo, capabilities };
}
