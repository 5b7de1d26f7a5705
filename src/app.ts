/**
 * The composition root, as a list: open the doors, load, compile, open, serve, reload, end. Everything else gets its
 * dependencies passed in from here; what a line needs was made by a line above it.
 */
import { mergedEndpoints } from "./admin/merge/merged-endpoints.ts";
import type { AdminEndpoint } from "./admin/server/endpoint.ts";
import { ADMIN_PATHS } from "./admin/server/paths.ts";
import { openAdminServer } from "./admin/server/server.ts";
import { createUi } from "./admin/ui/ui-endpoints.ts";
import { openAdminAddresses } from "./app/admin-addresses.ts";
import { openAudit } from "./app/audit.ts";
import { fittingLimits, watchHeapLoudly } from "./app/capacity.ts";
import { type Doors, logFilter, openDoors } from "./app/doors.ts";
import { drainBackends } from "./app/drain-backends.ts";
import { createEnding, type Ending } from "./app/ending.ts";
import { followCluster } from "./app/follow-cluster.ts";
import { openConfiguredStore } from "./app/open-configured-store.ts";
import { operatorEndpoints } from "./app/operator-endpoints.ts";
import { createReloads } from "./app/reload.ts";
import { createRequestRecords } from "./app/request-records.ts";
import { asStartError } from "./app/start-error.ts";
import { loadTelemetry } from "./app/telemetry.ts";
import { loadForThreads, type StartThread } from "./app/threads/load-for-threads.ts";
import { createHandedSockets, handedSockets } from "./app/upgrade/handed-sockets.ts";
import { openHandedStore } from "./app/upgrade/handed-store.ts";
import type { HandedSocket } from "./app/upgrade/messages.ts";
import type { Predecessor } from "./app/upgrade/predecessor.ts";
import type { Successor, SuccessorEvents } from "./app/upgrade/successor.ts";
import { createUpgrade, type UpgradeOutcome } from "./app/upgrade/upgrade.ts";
import { watchConfig } from "./app/watch-config.ts";
import { openSources, type SourceList } from "./config/load/sources.ts";
import type { Environment } from "./config/text/env.ts";
import type { Topology } from "./core/topology.ts";
import type { ClusterSource } from "./kubernetes/follow/snapshot-source.ts";
import type { LogOutput } from "./lib/log/log-output.ts";
import { registerProcessMetrics } from "./lib/log/process-metrics.ts";
import type { Clock } from "./lib/process/clock.ts";
import type { HeapSize } from "./lib/process/heap-pressure.ts";
import { createIdSource } from "./lib/text/ids.ts";
import { createInheritedSockets, inheritedSockets } from "./pipeline/listen/inherited-sockets.ts";
import type { ListenerLimits } from "./pipeline/listen/listener-env.ts";
import { createListeners, type Listeners } from "./pipeline/listen/listeners.ts";
import { trustedPeers } from "./pipeline/listen/trusted-peers.ts";

/**
 * After an upgrade, clients send one more request over connections that they keep, and are told to open another. Longer
 * than clients keep idle connections themselves (4 s in Node): a request that crosses our closing would be lost.
 */
const LINGER_MS = 10_000;

export interface AppOptions {
  /** Paths of `-f`, or one built-in text. */
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly output: LogOutput;
  /** Whether log levels are shown in colour. Default: not. */
  readonly color?: boolean;
  readonly version: string;
  readStdin(): string;
  /** A cluster whose documents are served besides. */
  readonly cluster?: ClusterSource;
  /** Where the admin interface binds when the configuration does not say. */
  readonly defaultAdminAddr?: string;
  /** The process that started this one to take its place. */
  readonly predecessor?: Predecessor | undefined;
  /** Starts the program again; absent where there is no program. */
  startSuccessor?(sockets: readonly HandedSocket[], events: SuccessorEvents): Successor;
  /** Starts a thread that serves; undefined where this form of the program has none. */
  readonly startThread?: StartThread;
  random?(): number;
  /** For tests, which can open neither 10,000 connections nor fill a heap. */
  readonly listenerLimits?: Partial<ListenerLimits>;
  heapSize?(): HeapSize;
}

export interface App {
  /** What serves now. */
  topology(): Topology;
  /** The port of each listener, by gateway name. */
  ports(): ReadonlyMap<string, number>;
  readonly adminUrl: string | undefined;
  /** Starts the program again as it is on disk now, hands over and drains; if that fails, goes on. */
  upgrade(): Promise<UpgradeOutcome>;
  /** Stops accepting, lets requests end up to the drain limit, closes everything. Called again: at once. */
  stop(): Promise<void>;
  /** Resolves when stopped, whoever asked for it. */
  readonly stopped: Promise<void>;
  /** An exception that only the process caught: counted and logged. */
  unexpected(error: unknown): void;
}

/** Rejects with a StartError, and leaves nothing open. */
export async function startApp(options: AppOptions): Promise<App> {
  const doors = openDoors(options);
  const ending = createEnding(doors.clock, doors.logger);
  ending.at("outgoing", () => doors.fetcher.close());
  try {
    return await serve(options, doors, ending);
  } catch (error) {
    await ending.end(0);
    const failure = asStartError(error);
    options.predecessor?.failed(failure.message);
    throw failure;
  }
}

async function serve(options: AppOptions, doors: Doors, ending: Ending): Promise<App> {
  const { version } = options;
  const { clock, logging, logger, metrics, unexpected, tasks, living } = doors;
  const startedMs = clock.monotonicMs();

  // Load and compile. A gateway may serve a copy of the UI: the list of endpoints is filled before anybody can ask.
  const endpoints: AdminEndpoint[] = [];
  const ui = createUi({ version, moduleUrl: import.meta.url, endpoints: () => endpoints });
  const sources = openSources(options.sources, options.readStdin);
  const handed = createHandedSockets(options.predecessor?.sockets ?? []);
  const inherited = createInheritedSockets([
    ...inheritedSockets(options.environment, process.pid),
    ...handed.forListeners,
  ]);
  const isActivated = inherited.unused().length > 0;
  const { first, loader, openCrew } = loadForThreads(options, doors, sources, ui.source, isActivated);
  ending.at("living", first.discard);
  ending.at("living", living.closeAll);
  const { process: settings, redaction } = first.config;
  logging.setFilter(logFilter(settings.logging?.level ?? "info"));
  logging.setFormat(settings.logging?.format ?? "text");
  await openHandedStore(doors.store, first.config, options.predecessor);
  ending.at("store", doors.store.close);
  await doors.signingKey.open(settings.sessionKey ?? []);
  ending.at("store", doors.signingKey.close);

  // What takes requests, and what is known of them.
  const ids = createIdSource();
  const random = options.random ?? Math.random;
  const telemetry = await loadTelemetry(settings.telemetry?.otlp, doors, { redaction, ids, random, version });
  if (telemetry !== undefined) ending.at("measuring", telemetry.close);
  ending.at("measuring", registerProcessMetrics(metrics, { version, startedAtMs: clock.now() }));
  const audit = openAudit(settings, doors, redaction, telemetry?.log);
  if (audit !== undefined) ending.at("measuring", audit.close);
  const records = createRequestRecords(doors, first.config, telemetry, audit);
  const heap = watchHeapLoudly(doors, options.heapSize);
  ending.at("measuring", heap.stop);
  const crew = openCrew(() => endpoints);
  const ownListeners = (): Listeners =>
    createListeners({
      clock,
      inherited,
      limits: fittingLimits(settings, options.listenerLimits, logger),
      heap,
      logger: logger.for("pipeline"),
      tasks,
      redaction,
      ids,
      random,
      isTrustedPeer: trustedPeers(settings.trustedProxies ?? []),
      trace: records.trace,
      settled: records.settled,
      defect: records.defect,
      unexpected: (error, client) => unexpected.report("connection", error, { client }),
    });
  // With several threads, these listen; this one then has the configuration, the admin interface and the end in hand.
  const listeners = crew ?? ownListeners();
  let lingerMs = 0;
  ending.at("listeners", async (drainMs) => {
    await listeners.close(drainMs, lingerMs);
    upgrade.lastWord();
  });

  // What replaces the configuration while it runs.
  const reloads = createReloads({
    clock,
    logger: logger.for("config"),
    metrics,
    sources: sources.names,
    first: first.config,
    begin: living.begin,
    prepare: loader.next,
    apply: listeners.apply,
    isEnding: () => ending.hasBegun,
  });
  ending.at("backends", () => drainBackends(reloads.running().topology));

  const stop = (): Promise<void> => {
    if (!ending.hasBegun) logger.info("draining", { limitMs: settings.drainTimeout, ...listeners.active() });
    return ending.end(settings.drainTimeout);
  };

  const upgrade = createUpgrade({
    clock,
    logger: logger.for("upgrade"),
    store: doors.store,
    limits: doors.limits,
    sockets: () => handedSockets(options.sources, settings, listeners.ports(), admin.ports),
    // The sockets of several threads cannot be handed over.
    start: crew === undefined ? options.startSuccessor : undefined,
    reopenStore: () => openConfiguredStore(doors.store, first.config),
    isEnding: () => ending.hasBegun,
    leave() {
      lingerMs = LINGER_MS;
      // The new process answers there now.
      admin.close();
      void stop();
    },
  });

  // What operators see.
  const parts = {
    version,
    startedMs,
    ui,
    sources,
    settings,
    records,
    heap,
    listeners,
    reloads,
    ending,
    stop,
    upgrade: upgrade.run,
  };
  const { all, statistics } = operatorEndpoints(doors, parts);
  const shown = (list: readonly AdminEndpoint[]) => (crew ? mergedEndpoints(list, crew.ask) : list);
  endpoints.push(...shown(all));

  // Open and serve.
  const admin = await openAdminAddresses({
    config: first.config,
    defaultAdminAddr: options.defaultAdminAddr,
    endpoints,
    statistics: shown(statistics),
    open: (address, list, audience) =>
      openAdminServer(address, list, logger.for("admin"), audience, handed.forProcess(audience)),
  });
  const { adminUrl } = admin;
  ending.at("admin", admin.close);
  await options.predecessor?.takeBuckets(doors.limits);
  await listeners.apply(first.config.topology);
  for (const { fd, name, port } of inherited.unused()) logger.warn("inherited socket is not used", { fd, name, port });
  handed.closeUnused(inherited.unused());
  first.serves();
  for (const warning of first.config.warnings) logger.for("config").warn(warning);
  if (adminUrl !== undefined) logger.for("admin").info("admin interface", { ui: `${adminUrl}${ADMIN_PATHS.ui}` });
  logger.info("started", { version, node: process.version, ms: Math.round(clock.monotonicMs() - startedMs) });

  // Reload.
  if (sources.canChange) ending.at("watch", watchConfig(doors, loader, reloads, first.content).stop);

  if (options.cluster) ending.at("watch", followCluster(options.cluster, reloads, first.config).stop);
  options.predecessor?.ready(version);

  const report = (error: unknown): void => unexpected.report("process", error);
  const topology = (): Topology => reloads.running().topology;
  return {
    topology,
    ports: listeners.ports,
    adminUrl,
    upgrade: upgrade.run,
    stop,
    stopped: ending.ended,
    unexpected: report,
  };
}
