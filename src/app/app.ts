/**
 * Creates the components of the gateway in order and passes their dependencies to them (composition root).
 */

import { requestsWithHistory } from "../admin/endpoints/usage.ts";
import { mergedEndpoints } from "../admin/merge/merged-endpoints.ts";
import type { AdminEndpoint } from "../admin/server/endpoint.ts";
import { ADMIN_PATHS } from "../admin/server/paths.ts";
import { openAdminServer } from "../admin/server/server.ts";
import { createUi } from "../admin/ui/ui.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import type { InheritedSockets } from "../pipeline/listen/inherited-sockets.ts";
import type { ListenerLimits } from "../pipeline/listen/listener-env.ts";
import { createListeners, type Listeners } from "../pipeline/listen/listeners.ts";
import { trustedPeers } from "../pipeline/listen/request-entry.ts";
import { mergeFamilies } from "../record/log/metrics.ts";
import { createAdminAddresses } from "./admin-addresses.ts";
import type { App, AppOptions } from "./app-options.ts";
import { fittingLimits } from "./capacity.ts";
import { loadAtStart, openConfiguredStore } from "./load-at-start.ts";
import { checkHistory, type Measuring, startMeasuring } from "./observability.ts";
import { operatorEndpoints } from "./operator-endpoints.ts";
import { createReloads, followCluster, watchConfig } from "./reload.ts";
import { openServices, type Services } from "./services.ts";
import { createShutdown, drainBackends, type Shutdown, suspendedCallsEnded, within } from "./shutdown.ts";
import { asStartError } from "./start-error.ts";
import type { ThreadPool } from "./threads/thread-pool.ts";
import { handedSockets } from "./upgrade/handed-sockets.ts";
import { createUpgrade } from "./upgrade/upgrade.ts";

/** After an upgrade, idle client connections stay open this long for one more request. */
const UPGRADE_LINGER_MS = 10_000;
/**
 * The limit for a process that stops is shorter than after an upgrade, because a service manager waits for the exit.
 */
const STOP_LINGER_MS = 5_000;

/** Rejects with a StartError after closing everything that it opened. */
export async function startApp(options: AppOptions): Promise<App> {
  const services = openServices(options);
  const shutdown = createShutdown(services.clock, services.logger);
  shutdown.at("outgoing", () => services.fetcher.close());
  try {
    return await serve(options, services, shutdown);
  } catch (error) {
    await options.predecessor?.release();
    await shutdown.run(0);
    const failure = asStartError(error);
    await options.predecessor?.failed(failure.message);
    throw failure;
  }
}

async function serve(options: AppOptions, services: Services, shutdown: Shutdown): Promise<App> {
  const { version, predecessor } = options;
  const { clock, logger, metrics, unexpected, resources } = services;
  const startedMs = clock.monotonicMs();

  // A listener can serve the UI, so the list of endpoints exists before the configuration is compiled. It is filled
  // before listeners open.
  const endpoints: AdminEndpoint[] = [];
  const ui = createUi({ version, moduleUrl: import.meta.url, endpoints: () => endpoints });
  const { sources, handed, inherited, first, loader, threads, openThreadPool } = await loadAtStart(
    options,
    services,
    shutdown,
    ui,
  );
  const { config } = first;
  // The functions below live as long as the process, so none of them may refer to `config` or `first`, which are replaced.
  const { settings } = config;

  // With several threads, the worker threads listen, and the main thread runs reloads, the admin interface and the
  // shutdown.
  let pool: ThreadPool | undefined;
  const collectMetrics = async () =>
    pool === undefined ? metrics.collect() : mergeFamilies([metrics.collect(), await pool.metrics()]);
  const isServing = threads === 1;
  const measuring = await startMeasuring(options, services, shutdown, settings, { isServing, collectMetrics });
  const { records, heap, historyDatabase, auditFile, instanceId } = measuring;
  pool = openThreadPool({
    auditFile,
    instanceId,
    endpoints: () => endpoints,
    history: (batch) => historyDatabase?.addBatch(batch),
  });
  const listeners = pool ?? ownListeners(services, settings, measuring, inherited, options.listenerLimits);

  const reloads = createReloads(
    {
      clock,
      logger: logger.for("config"),
      metrics,
      sources: sources.names,
      begin: resources.begin,
      load: loader.load,
      apply: listeners.apply,
      isShuttingDown: () => shutdown.hasBegun,
    },
    config,
  );
  shutdown.at("backends", () => drainBackends(reloads.running().topology));

  void shutdown.ended.then(() => logger.info("stopped"));

  let lingerMs = STOP_LINGER_MS;
  let isUpgraded = false;
  const stop = (closesIdle = false): Promise<void> => {
    if (closesIdle) lingerMs = 0;
    if (!shutdown.hasBegun) logger.info("draining", { limitMs: settings.process.drainTimeout, ...listeners.active() });
    return shutdown.run(settings.process.drainTimeout);
  };
  const admin = createAdminAddresses({
    config: settings,
    defaultAdminAddr: options.defaultAdminAddr,
    open: (address, list, audience) =>
      openAdminServer(address, list, logger.for("admin"), audience, handed.forProcess(audience)),
  });
  shutdown.at("admin", admin.close);
  const upgrade = createUpgrade({
    clock,
    logger: logger.for("upgrade"),
    store: services.store,
    limits: services.limits,
    sockets: () => handedSockets(options.sources, settings.process, listeners.ports(), admin.ports, threads),
    start: options.startSuccessor,
    reopenStore: (content) => openConfiguredStore(services.store, settings, content),
    isShuttingDown: () => shutdown.hasBegun,
    leave() {
      lingerMs = UPGRADE_LINGER_MS;
      isUpgraded = true;
      admin.leave();
      void stop();
    },
  });
  shutdown.at("listeners", async (drainMs) => {
    const untilMs = clock.monotonicMs() + drainMs;
    if (pool) await pool.close(drainMs, lingerMs, isUpgraded);
    else {
      await listeners.close(drainMs, lingerMs);
      // The new process forwards the retries of these calls.
      if (isUpgraded) await suspendedCallsEnded(reloads.running().topology, clock, untilMs);
    }
    // The process before this one may still drain, and uses the store and the limits through this one.
    if (isUpgraded && predecessor) await within(predecessor.ended, clock, untilMs - clock.monotonicMs());
    upgrade.allRequestsEnded();
  });

  const parts = { version, startedMs, ui, sources, settings, records, heap, listeners, reloads, shutdown, stop };
  const { all, statistics } = operatorEndpoints(services, {
    ...parts,
    historyDatabase,
    collectMetrics,
    upgrade: upgrade.run,
  });
  const shown = (list: readonly AdminEndpoint[]) => (pool ? mergedEndpoints(list, pool.ask) : list);
  endpoints.push(
    ...shown(all).map((endpoint) =>
      endpoint.path === ADMIN_PATHS.requests ? requestsWithHistory(endpoint, historyDatabase) : endpoint,
    ),
  );

  await checkHistory(historyDatabase, settings);
  const adminUrl = await admin.open(endpoints, shown(statistics));
  await predecessor?.takeBuckets(services.limits);
  await listeners.apply(config.topology);
  for (const { fd, name, port } of inherited.unused()) logger.warn("inherited socket is not used", { fd, name, port });
  handed.closeUnused(inherited);
  first.serves();
  for (const warning of config.warnings) logger.for("config").warn(warning);
  if (adminUrl !== undefined) logger.for("admin").info("admin interface", { ui: `${adminUrl}${ADMIN_PATHS.ui}` });
  logger.info("started", { version, node: process.version, ms: Math.round(clock.monotonicMs() - startedMs) });

  if (sources.canChange) shutdown.at("watch", watchConfig(services, loader, reloads, first.content).stop);
  if (options.cluster) shutdown.at("watch", followCluster(options.cluster, reloads).stop);
  predecessor?.ready(version);

  return {
    topology: () => reloads.running().topology,
    ports: listeners.ports,
    adminUrl,
    upgrade: upgrade.run,
    stop,
    stopped: shutdown.ended,
    unexpected: (error) => unexpected.report("process", error),
  };
}

function ownListeners(
  { clock, logger, metrics, tasks, unexpected, memory }: Services,
  { process: settings, redaction }: ProcessSettings,
  { ids, random, records, heap }: Measuring,
  inherited: InheritedSockets,
  limits: Partial<ListenerLimits> | undefined,
): Listeners {
  return createListeners({
    clock,
    inherited,
    limits: fittingLimits(settings, limits, logger),
    heap,
    memory,
    logger: logger.for("pipeline"),
    metrics,
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
}
