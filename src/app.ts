/**
 * The composition root: loads the configuration, compiles it, opens listeners and the admin interface, swaps in
 * reloads, and ends everything in order. Everything else gets its dependencies passed in from here.
 */
import { parseAdminAddress } from "./admin/address.ts";
import { allEndpoints } from "./admin/all-endpoints.ts";
import type { AdminEndpoint } from "./admin/endpoint.ts";
import { statsEndpoints } from "./admin/health.ts";
import { noHeapSampling, startHeapSampling } from "./admin/heap-sampling.ts";
import { ADMIN_PATHS } from "./admin/paths.ts";
import { type AdminServer, openAdminServer } from "./admin/server.ts";
import { createUi } from "./admin/ui-endpoints.ts";
import { configDump, type ReloadState } from "./config/dump.ts";
import type { Environment } from "./config/env.ts";
import { createLivingThings } from "./config/living.ts";
import { type Prepared, prepareConfig } from "./config/prepare.ts";
import { openSources, type SourceList } from "./config/sources.ts";
import { watchFiles } from "./config/watch.ts";
import type { Exchange } from "./core/exchange.ts";
import { createLimitRegistry } from "./core/limit-registry.ts";
import { type Clock, wait } from "./lib/clock.ts";
import { openFetcher } from "./lib/fetch.ts";
import { type HeapSize, oldGeneration, processMemory, tightest, watchHeap } from "./lib/heap-pressure.ts";
import { createIdSource } from "./lib/ids.ts";
import { type LogFilter, parseLogFilter } from "./lib/log-filter.ts";
import type { LogOutput } from "./lib/log-output.ts";
import { createLogging, silentLogger } from "./lib/logger.ts";
import { createMetrics } from "./lib/metrics.ts";
import { connectionsThatFit, openFilesLimit } from "./lib/open-files.ts";
import { createTasks } from "./lib/tasks.ts";
import { createUnexpectedErrors } from "./lib/unexpected-errors.ts";
import { createAccessLog } from "./pipeline/access-log.ts";
import { LISTENER_LIMITS, type ListenerLimits } from "./pipeline/listener.ts";
import { createListeners, explainBindError } from "./pipeline/listeners.ts";
import { createRecentRequests } from "./pipeline/recent-requests.ts";
import { createRequestMetrics } from "./pipeline/request-metrics.ts";
import { trustedPeers } from "./pipeline/trusted-peers.ts";
import { createTraceHub } from "./trace/hub.ts";
import { createKeptTraces } from "./trace/kept-traces.ts";
import type { Redaction } from "./trace/redact.ts";

/** Why the gateway did not start: lines to print, one per problem. */
export class StartError extends Error {
  readonly lines: readonly string[];

  constructor(lines: readonly string[]) {
    super(lines.join("\n"));
    this.name = "StartError";
    this.lines = lines;
  }
}

/** Longer than the grace that children get. */
const CLOSE_LIMIT_MS = 8_000;
const MIB = 1024 * 1024;

export interface AppOptions {
  /** Paths of `-f`, or one built-in text. */
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly output: LogOutput;
  readonly version: string;
  readStdin(): string;
  /** Where the admin interface binds when the configuration does not say. */
  readonly defaultAdminAddr?: string;
  random?(): number;
  /** For tests, which can open neither 10,000 connections nor fill a heap. */
  readonly listenerLimits?: Partial<ListenerLimits>;
  heapSize?(): HeapSize;
}

export interface App {
  /** The port of each listener, by gateway name. */
  ports(): ReadonlyMap<string, number>;
  readonly adminUrl: string | undefined;
  /** Stops accepting, lets requests end up to the drain limit, closes everything. Called again: at once. */
  stop(): Promise<void>;
  /** Resolves when stopped, whoever asked for it. */
  readonly stopped: Promise<void>;
  /** An exception that only the process caught: counted and logged. */
  unexpected(error: unknown): void;
}

/** Checks a configuration without opening anything; throws StartError. */
export function validateOnly(
  options: Pick<AppOptions, "sources" | "environment" | "clock" | "readStdin">,
): readonly string[] {
  const living = createLivingThings(() => undefined);
  const generation = living.begin();
  const { clock, environment } = options;
  const sources = openSources(options.sources, options.readStdin);
  const prepared = prepareConfig(orStartError(sources.read), {
    clock,
    environment,
    // Validation probes nothing: what would be fetched fails at once and is nobody's loss.
    fetch: () => Promise.reject(new Error("validation only")),
    logger: silentLogger,
    tasks: createTasks(clock),
    metrics: createMetrics(),
    limits: createLimitRegistry(),
    redaction: undefined,
    generation,
    fileRead: () => undefined,
  });
  generation.discard();
  if (!prepared.ok) throw new StartError(prepared.problems);
  return prepared.warnings;
}

export async function startApp(options: AppOptions): Promise<App> {
  const { clock, environment, version } = options;
  const sources = openSources(options.sources, options.readStdin);
  const startedAt = clock.monotonicMs();
  const metrics = createMetrics();
  const tasks = createTasks(clock);
  const limits = createLimitRegistry();
  const fetcher = openFetcher(clock);
  const logging = createLogging({ clock, output: options.output, filter: filterOf("info"), format: "text" });
  const logger = logging.logger;
  const unexpected = createUnexpectedErrors({ clock, logger, metrics });
  const living = createLivingThings((key, error) =>
    logger.warn("could not close", { what: key.split("\n", 1)[0] ?? "", error: String(error) }),
  );

  const readFiles = new Set<string>();
  const context = (generation: ReturnType<typeof living.begin>, running: Redaction | undefined) => ({
    clock,
    environment,
    fetch: fetcher.fetch,
    logger,
    tasks,
    metrics,
    limits,
    redaction: running,
    generation,
    internals: { uiSource: ui.source },
    fileRead: (path: string) => void readFiles.add(path),
  });

  // Made before everything it shows, because a gateway may serve a copy of it: it asks when it needs to know.
  const ui = createUi({
    version,
    clock,
    environment,
    fetch: fetcher.fetch,
    moduleUrl: import.meta.url,
    redaction: () => redaction,
    read: sources.read,
    mayEdit: () => sources.canChange && processSettings.allowConfigEdit === true,
    endpoints: () => endpoints,
    listeners: () => current.topology.listeners,
    ports: () => listeners.ports(),
  });

  const first = living.begin();
  const prepared = prepareConfig(orStartError(sources.read), context(first, undefined));
  const loaded = orStartError(() => sources.content(readFiles));
  if (!prepared.ok) {
    first.discard();
    fetcher.close();
    throw new StartError(prepared.problems);
  }
  const processSettings = prepared.process;
  const { redaction } = prepared;
  logging.setFilter(filterOf(processSettings.logging?.level ?? "info"));
  logging.setFormat(processSettings.logging?.format ?? "text");

  const hub = createTraceHub<Exchange>();
  const keepFailed = processSettings.tracing?.keepFailed;
  const kept = keepFailed && createKeptTraces(keepFailed.maxBytes);
  const recent = createRecentRequests({ clock, redaction, watcher: (exchange) => hub.take(exchange), kept });
  const accessLog = createAccessLog(logger.for("access"));
  const countRequest = createRequestMetrics(metrics);
  const nodeFlags = [environment.NODE_OPTIONS ?? "", ...process.execArgv];
  const memory = options.heapSize ?? tightest(oldGeneration(nodeFlags), processMemory());
  const pressure = watchHeap(clock, sayPressure, memory);
  const listeners = createListeners({
    clock,
    limits: listenerLimits(),
    heap: pressure,
    logger: logger.for("pipeline"),
    tasks,
    redaction,
    ids: createIdSource(),
    random: options.random ?? Math.random,
    isTrustedPeer: trustedPeers(processSettings.trustedProxies ?? []),
    trace: (exchange) => recent.begin(exchange),
    settled(exchange, outcome) {
      const durationMs = clock.monotonicMs() - exchange.startedMs;
      countRequest(exchange, outcome, durationMs);
      accessLog(exchange, outcome, durationMs);
      recent.settled(exchange, outcome, durationMs);
    },
    defect: (exchange, error) => unexpected.report("request", error, { id: exchange.id, route: exchange.route }),
    unexpected: (error, client) => unexpected.report("connection", error, { client }),
  });

  let current: Extract<Prepared, { ok: true }> = prepared;
  let reload: ReloadState = {
    loadedAt: iso(clock),
    generation: 1,
    warnings: prepared.warnings,
    sources: sources.names,
    needsRestart: [],
  };
  const metricsReload = metrics.counter("gateway_config_reloads_total", "Configuration loads, by result.", ["result"]);
  let draining = false;

  let admin: AdminServer | undefined;
  let stats: AdminServer | undefined;
  let resolveStopped: () => void = () => undefined;
  const stopped = new Promise<void>((resolve) => {
    resolveStopped = resolve;
  });

  const statistics = statsEndpoints({ metrics, notReady });
  const heap =
    process.platform === "linux" && processSettings.adminAddr !== "off" ? startHeapSampling() : noHeapSampling;
  const endpoints = allEndpoints({
    version,
    clock,
    logger: logger.for("admin"),
    logging,
    hub,
    recent,
    kept,
    limits,
    tasks,
    heap,
    statistics,
    ui: ui.endpoint(),
    upMs: () => clock.monotonicMs() - startedAt,
    dump: () =>
      configDump({
        topology: current.topology,
        process: current.process,
        resources: current.resources,
        services: current.services,
        redaction,
        version,
        reload,
        ports: listeners.ports(),
      }),
    topology: () => current.topology,
    active: () => listeners.active(),
    shutDown: () => void stop(),
  });

  try {
    admin = await openAt(
      prepared.processWrittenAt("adminAddr"),
      processSettings.adminAddr ?? options.defaultAdminAddr,
      endpoints,
    );
    if (processSettings.statsAddr !== undefined)
      stats = await openAt(prepared.processWrittenAt("statsAddr"), processSettings.statsAddr, statistics, "scrapers");
    await listeners.apply(prepared.topology);
  } catch (error) {
    admin?.close();
    stats?.close();
    await listeners.close(0);
    first.discard();
    fetcher.close();
    pressure.stop();
    throw error instanceof StartError ? error : new StartError([(error as Error).message]);
  }
  first.commit();
  for (const warning of prepared.warnings) logger.for("config").warn(warning);
  if (admin.url !== undefined) logger.for("admin").info("admin interface", { ui: `${admin.url}${ADMIN_PATHS.ui}` });
  logger.info("started", { version, node: process.version, ms: Math.round(clock.monotonicMs() - startedAt) });

  const watch = sources.canChange
    ? watchFiles({
        clock,
        paths: () => [...sources.paths(), ...readFiles],
        loaded,
        read: () => sources.content(readFiles),
        onChange: () =>
          reloadOnce().catch((error) =>
            logger.error("reload failed", { error: (error as Error).stack ?? String(error) }),
          ),
        onUnreadable: (error) => refuse([error.message]),
        onRestored() {
          const { refused: _, ...rest } = reload;
          reload = rest;
          logger.for("config").info("the configuration can be read again and is the running one");
        },
      })
    : undefined;

  function notReady(): string[] {
    if (draining) return ["draining"];
    return pressure.level === "full" ? ["memory"] : listeners.notServing();
  }

  function sayPressure(level: string, { of = "heap", usedBytes, limitBytes }: HeapSize): void {
    const size = { of, usedMiB: Math.round(usedBytes / MIB), limitMiB: Math.round(limitBytes / MIB) };
    if (level === "full") logger.error("memory is full: new requests are refused", size);
    else if (level === "tight") logger.warn("memory is nearly full: connections are not kept", size);
    else logger.info("memory has room again", size);
  }

  function listenerLimits(): ListenerLimits {
    const { tunnelIdleTimeout } = processSettings;
    const wanted = {
      ...LISTENER_LIMITS,
      tunnelIdleMs: tunnelIdleTimeout === 0 ? Number.POSITIVE_INFINITY : tunnelIdleTimeout,
      ...options.listenerLimits,
    };
    const openFiles = openFilesLimit();
    const maxConnections = connectionsThatFit(openFiles, wanted.maxConnections);
    if (maxConnections < wanted.maxConnections)
      logger.warn("few files may be open (ulimit -n): each listener accepts fewer connections", {
        openFiles,
        connections: maxConnections,
        wantedOpenFiles: 2 * wanted.maxConnections,
      });
    return { ...wanted, maxConnections };
  }

  async function openAt(
    writtenAt: string,
    text: string | undefined,
    list: readonly AdminEndpoint[],
    audience: "operators" | "scrapers" = "operators",
  ): Promise<AdminServer> {
    try {
      return await openAdminServer(parseAdminAddress(text), list, logger.for("admin"), audience);
    } catch (error) {
      throw new StartError([
        `${writtenAt}: cannot listen on ${text ?? "loopback port 15000"}: ${explainBindError(error)}`,
      ]);
    }
  }

  function refuse(problems: readonly string[]): void {
    metricsReload.labels("refused").add();
    reload = { ...reload, refused: { at: iso(clock), problems } };
    for (const problem of problems) logger.for("config").error(problem);
    logger.for("config").error("the configuration was refused; the one before goes on", { problems: problems.length });
  }

  async function reloadOnce(): Promise<void> {
    if (draining) return;
    const generation = living.begin();
    const before = current;
    readFiles.clear();
    let next: Prepared;
    try {
      next = prepareConfig(sources.read(), context(generation, redaction), before);
    } catch (error) {
      generation.discard();
      refuse([(error as Error).message]);
      return;
    }
    if (!next.ok) {
      generation.discard();
      refuse(next.problems);
      return;
    }
    try {
      await listeners.apply(next.topology);
    } catch (error) {
      generation.discard();
      refuse([(error as Error).message]);
      return;
    }
    current = { ...next, process: before.process };
    generation.commit();
    metricsReload.labels("ok").add();
    const needsRestart = JSON.stringify(next.process) === JSON.stringify(before.process) ? [] : ["config"];
    reload = {
      loadedAt: iso(clock),
      generation: reload.generation + 1,
      warnings: next.warnings,
      sources: reload.sources,
      needsRestart,
    };
    if (needsRestart.length > 0)
      logger.for("config").warn("`config:` changed: it is read at start only, restart to apply it");
    for (const removed of removedSecurity(before, next))
      logger.for("config").warn("a reload removed a security policy", { policy: removed });
    for (const warning of next.warnings) logger.for("config").warn(warning);
    logger.for("config").info("configuration loaded", { generation: reload.generation });
  }

  async function stop(): Promise<void> {
    const limitMs = draining ? 0 : processSettings.drainTimeout;
    if (!draining) logger.info("draining", { limitMs, ...listeners.active() });
    draining = true;
    watch?.stop();
    for (const { routes } of current.topology.listeners) {
      for (const { backends } of routes) for (const { backend } of backends) backend.drain?.();
    }
    await listeners.close(limitMs);
    // Children are asked, then told, then made to end: that takes a few seconds at most.
    await Promise.race([living.closeAll(), wait(clock, CLOSE_LIMIT_MS)]);
    fetcher.close();
    heap.stop();
    pressure.stop();
    admin?.close();
    stats?.close();
    // One turn, so that the answer to /quitquitquit and the last log lines get out.
    await new Promise((resolve) => setImmediate(resolve));
    resolveStopped();
  }

  return {
    ports: () => listeners.ports(),
    adminUrl: admin.url,
    stop,
    stopped,
    unexpected: (error) => unexpected.report("process", error),
  };
}

function removedSecurity(before: Extract<Prepared, { ok: true }>, next: Extract<Prepared, { ok: true }>): string[] {
  return before.security.filter((policy) => !next.security.includes(policy));
}

/** At the start, a file that cannot be read is a reason not to start. */
function orStartError<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw new StartError([(error as Error).message]);
  }
}

function filterOf(text: string): LogFilter {
  const parsed = parseLogFilter(text);
  if (!parsed.ok) throw new StartError([`log filter: ${parsed.error}`]);
  return parsed.filter;
}

function iso(clock: Clock): string {
  return new Date(clock.now()).toISOString();
}
