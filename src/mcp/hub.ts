/**
 * Holds the targets, sessions, and processes of one MCP backend. The hub survives reloads.
 */

import { createIdSource } from "../base/ids.ts";
import type { Task } from "../base/tasks.ts";
import type { BackendRun, ResponseReceiver } from "../core/backend.ts";
import type { Exchange } from "../core/exchange.ts";
import type { McpGuardrails } from "../core/mcp-guardrails.ts";
import { requestSubject } from "../core/principal.ts";
import type { WireTap } from "../core/wire.ts";
import type { HeaderList } from "../http/headers.ts";
import type { TlsOptions } from "../http/http-client.ts";
import { find, slice } from "../json/json-text.ts";
import type { Names } from "./aggregation/names.ts";
import { type BackendServices, BackendState, type CompiledTargets, namesFor } from "./backend-state.ts";
import { asRequest2026, runSessionless, type SessionlessServices } from "./client-side/sessionless-call.ts";
import { streamEndpoint } from "./client-side/sse-request.ts";
import type { ClientRequest } from "./protocol/json-rpc.ts";
import { TaskRecords } from "./replicas/task-records.ts";
import { clientIdentity, RouterFactory } from "./router-factory.ts";
import { ProcessLimiter } from "./server-side/process-pool.ts";
import { type ServerState, serverState } from "./server-side/server-state.ts";
import { defaultConcurrentStarts, Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import { ownsProcess, UpstreamDrain } from "./server-side/upstream.ts";
import { type ClientGroup, clientGroupOwner, digest, sessionOwner } from "./session/client-group.ts";
import type { Session } from "./session/session.ts";
import type { CallReport } from "./session/session-calls.ts";
import { SessionRecords } from "./session/session-records.ts";
import { type SessionClient, SessionStore } from "./session/session-store.ts";
import { SessionResumption } from "./session-resumption.ts";
import type { Inspection } from "./tools/inspect-tools.ts";

export class Hub {
  readonly name: string;
  readonly #state: BackendState;
  closed: (() => void) | undefined = undefined;
  readonly sessions: SessionStore;
  readonly resumption: SessionResumption;
  readonly #limiter: ProcessLimiter;
  readonly #task: Task;
  readonly #services: BackendServices;
  readonly #drain: UpstreamDrain;
  #removedTargets: Target[] = [];
  readonly #ids = createIdSource();
  readonly #routers: RouterFactory;
  #forwarded: readonly string[];
  #isClosed = false;

  constructor(config: McpConfig, compiled: CompiledTargets, services: BackendServices) {
    const env = services;
    this.#services = services;
    this.#state = new BackendState(config, compiled, services);
    this.name = env.name;
    this.#task = env.tasks.start("mcp backend", env.name, () => ({
      children: this.#limiter.running,
      sessions: this.sessions.size,
      servers: this.#serverStates(),
      ...targetFailures(this.targets),
      ...this.#state.tools.report(),
    }));
    this.#forwarded = forwardedBy(config);
    this.#limiter = new ProcessLimiter(processLimits(config), env.clock, (client, isOwn) =>
      this.#makeRoom(client, isOwn),
    );
    this.#drain = new UpstreamDrain(env.clock, () => this.#closeRemovedTargets());
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
      drain: this.#drain,
      records,
      memory: env.memory,
    });
    this.#state.targets = config.targets.map((target) => this.#target(target, env.tls));
    const tasks = new TaskRecords({
      backend: env.name,
      clock: env.clock,
      logger: env.logger,
      store: env.store,
      key: env.signingKey,
    });
    this.#routers = new RouterFactory(this.#state, this.sessions, tasks, records.replication);
    this.resumption = new SessionResumption(this.sessions, records, this.#routers);
  }

  get names(): Names {
    return this.#state.names;
  }

  get targets(): readonly Target[] {
    return this.#state.targets;
  }

  get children(): number {
    return this.#limiter.running;
  }

  /** Applies a new configuration. Targets with an unchanged definition keep their processes. */
  configure(
    config: McpConfig,
    { toolSettings, logins, signers, relaysLogin }: CompiledTargets,
    tls: TlsOptions | undefined,
  ): void {
    const state = this.#state;
    state.relaysLogin = relaysLogin;
    state.config = config;
    state.logins = logins;
    state.signers = signers;
    const hasSameTools = state.tools.configure(toolSettings);
    this.#forwarded = forwardedBy(config);
    this.#limiter.limits = processLimits(config);
    this.sessions.settings = storeSettings(config);
    const before = this.targets;
    const targets = config.targets.map(
      (target) =>
        before.find((one) => one.isDefinedBy(target, tls) && hasSameTools(target.name)) ?? this.#target(target, tls),
    );
    const names = namesFor(config);
    const isSame = targets.length === before.length && targets.every((target, i) => target === before[i]);
    if (isSame && names.isPrefixed === this.names.isPrefixed) return;
    state.targets = targets;
    state.names = names;
    this.sessions.change({ targets, names });
    for (const target of before) if (!targets.includes(target)) this.#leave(target);
    if (this.#drain.isEmpty) this.#closeRemovedTargets();
  }

  serve(config: McpConfig, compiled: CompiledTargets, tls: TlsOptions | undefined): void {
    this.configure(config, compiled, tls);
    for (const target of this.targets) target.warmUp();
  }

  /** Frees a process slot by stopping a spare process or ending an idle session with a running process. */
  #makeRoom(client: string | undefined, isOwn: boolean): boolean {
    if (client !== undefined && isOwn) return this.sessions.makeRoomWithin(client, ownsProcess);
    return this.targets.some((target) => target.dropSpare()) || this.sessions.makeRoom(ownsProcess, client);
  }

  clientOf(exchange: Exchange): SessionClient {
    const headerBytes = this.wantsHeaders ? exchange.request.headers.chars : 0;
    const user = requestSubject(exchange.attributes) ?? undefined;
    return { client: exchange.client, owner: sessionOwner(exchange), user, headerBytes };
  }

  retire(): Promise<void> {
    this.sessions.retire();
    const { sessions } = this;
    return new Promise((resolve) => {
      this.#drain.add({
        get pendingCalls() {
          return sessions.busy;
        },
        sweep: () => undefined,
        close: () => this.#close().then(resolve),
      });
    });
  }

  get wantsHeaders(): boolean {
    return this.#state.wantsHeaders;
  }

  initialize(request: ClientRequest, exchange: Exchange, sink: ResponseReceiver, report: CallReport): BackendRun {
    const params = find(request.text, 0, "params");
    const session = this.sessions.create(this.clientOf(exchange), params ? slice(request.text, params) : "{}");
    const router = this.#routers.for2025(session, request, exchange.request.headers);
    return session.open(router, request, sink, report, sink, exchange.mcp.guardrails);
  }

  openStream(exchange: Exchange, sink: ResponseReceiver): BackendRun {
    const session = this.sessions.create(this.clientOf(exchange));
    return session.openStream(sink, streamEndpoint(exchange.request, session));
  }

  initializeStream(
    session: Session,
    request: ClientRequest,
    headers: HeaderList,
    report: CallReport,
    wire: WireTap | undefined,
    guardrails: McpGuardrails | undefined,
  ): void {
    session.openOnStream(this.#routers.for2025(session, request, headers), request, report, wire, guardrails);
  }

  serve2026(request: ClientRequest, exchange: Exchange, sink: ResponseReceiver, report: CallReport): BackendRun {
    return runSessionless(
      this.#group(request, exchange),
      { request, sent: request },
      exchange,
      sink,
      this.#sessionlessServices(report),
    );
  }

  serveStateless(request: ClientRequest, exchange: Exchange, sink: ResponseReceiver, report: CallReport): BackendRun {
    const sent = asRequest2026(request);
    return runSessionless(
      this.#group(sent, exchange),
      { request, sent },
      exchange,
      sink,
      this.#sessionlessServices(report),
    );
  }

  #sessionlessServices(report: CallReport): SessionlessServices {
    return { report, sessions: this.sessions, nowMs: () => this.#services.clock.monotonicMs() };
  }

  get suspendedCalls(): number {
    return this.#routers.suspendedCalls;
  }

  inspection(): Inspection {
    return {
      targets: this.targets,
      tools: this.#state.tools,
      link: (target) => this.#routers.connectionOptions(target),
    };
  }

  async close(): Promise<void> {
    await this.#close();
    await this.#drain.close();
    this.#closeRemovedTargets();
  }

  async #close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.sessions.close();
    for (const target of this.targets) target.close();
    this.#task.end();
    this.closed?.();
  }

  #serverStates(): ServerState[] {
    const details = this.sessions.connectionDetails();
    return this.targets.map(({ name, failures }) => serverState(name, details, failures.last()));
  }

  #target(config: McpConfig["targets"][number], tls: TlsOptions | undefined): Target {
    return new Target(config, {
      ...this.#services,
      tls,
      limiter: this.#limiter,
      sizes: () => this.#state.config,
      messages: this.#services.memory.messages,
      relaysLogin: () => this.#state.relaysLogin,
      signer: (target) => this.#state.signers.get(target),
    });
  }

  #closeRemovedTargets(): void {
    for (const target of this.#removedTargets) target.close();
    this.#removedTargets = [];
  }

  #leave(target: Target): void {
    this.#removedTargets.push(target);
    target.leave();
    this.#state.tools.forget(target);
    const server = this.#routers.forget(target);
    if (server === undefined) return;
    this.#drain.add({
      get pendingCalls() {
        return server.isIdle ? 0 : 1;
      },
      sweep: () => undefined,
      close: async () => server.end("its definition changed"),
    });
  }

  /**
   * Unless all servers are known to speak 2026-07-28, the key includes the client's name and capabilities, because a 2025
   * server receives them in `initialize`.
   */
  #group(request: ClientRequest, exchange: Exchange): ClientGroup {
    const owner = clientGroupOwner(exchange, this.#forwarded);
    const identity = clientIdentity(request);
    const is2026 = (): boolean => this.targets.every(({ config, speaks2026 }) => config.shared || speaks2026 === true);
    const key = is2026() ? owner : `${owner}\n${digest(`${identity.clientInfo}\n${identity.capabilities}`)}`;
    const known = this.sessions.group(key);
    if (known) return known;
    const group = this.sessions.createGroup(key, owner, this.clientOf(exchange), identity.envelope.length);
    group.open(this.#routers.for2026(group, identity, exchange.request.headers), () => {
      if (is2026()) this.sessions.addGroupKey(group, owner);
    });
    return group;
  }
}

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

export function targetFailures(targets: readonly Target[]): Record<string, unknown> {
  const failures = targets.flatMap(({ name, failures: of }) => {
    const last = of.last();
    return last ? [{ target: name, ...last }] : [];
  });
  return failures.length === 0 ? {} : { failures };
}
