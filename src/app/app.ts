/**
 * The composition root, as a list: open the doors, load, compile, open, serve, reload, end. Everything else gets its
 * dependencies passed in from here; what a line needs was made by a line above it.
 */
import { mergedEndpoints } from "../admin/merge/merged-endpoints.ts";
import type { AdminEndpoint } from "../admin/server/endpoint.ts";
import { ADMIN_PATHS } from "../admin/server/paths.ts";
import { openAdminServer } from "../admin/server/server.ts";
import { createUi } from "../admin/ui/ui-endpoints.ts";
import { createAdminAddresses } from "./admin-addresses.ts";
import { type Doors, openDoors } from "./doors.ts";
import { drainBackends } from "./drain-backends.ts";
import { createEnding, type Ending } from "./ending.ts";
import { followCluster } from "./follow-cluster.ts";
import { openConfiguredStore } from "./open-configured-store.ts";
import { operatorEndpoints } from "./operator-endpoints.ts";
import { createReloads } from "./reload.ts";
import type { App, AppOptions } from "./start/app-options.ts";
import { loadAtStart } from "./start/load.ts";
import { startMeasuring } from "./start/measure.ts";
import { ownListeners } from "./start/own-listeners.ts";
import { asStartError } from "./start-error.ts";
import { handedSockets } from "./upgrade/handed-sockets.ts";
import { createUpgrade } from "./upgrade/upgrade.ts";
import { watchConfig } from "./watch-config.ts";

/**
 * After an upgrade, clients send one more request over connections that they keep, and are told to open another. Longer
 * than clients keep idle connections themselves (4 s in Node): a request that crosses our closing would be lost.
 */
const LINGER_MS = 10_000;

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
  const { version, predecessor } = options;
  const { clock, logger, metrics, unexpected, living } = doors;
  const startedMs = clock.monotonicMs();

  // Load and compile. A gateway may serve a copy of the UI: the list of endpoints is filled before anybody can ask.
  const endpoints: AdminEndpoint[] = [];
  const ui = createUi({ version, moduleUrl: import.meta.url, endpoints: () => endpoints });
  const { sources, handed, inherited, first, loader, openCrew } = await loadAtStart(options, doors, ending, ui);
  const { config } = first;
  const settings = config.process;

  // What takes requests, and what is known of them. With several threads, these listen; this one then has the
  // configuration, the admin interface and the end in hand.
  const measuring = await startMeasuring(options, doors, ending, config);
  const { records, heap } = measuring;
  const crew = openCrew(() => endpoints);
  const listeners = crew ?? ownListeners(doors, config, measuring, inherited, options.listenerLimits);

  // What replaces the configuration while it runs.
  const reloads = createReloads({
    clock,
    logger: logger.for("config"),
    metrics,
    sources: sources.names,
    first: config,
    begin: living.begin,
    prepare: loader.next,
    apply: listeners.apply,
    isEnding: () => ending.hasBegun,
  });
  ending.at("backends", () => drainBackends(reloads.running().topology));

  // What ends the process, or gives its place to another.
  const stop = (): Promise<void> => {
    if (!ending.hasBegun) logger.info("draining", { limitMs: settings.drainTimeout, ...listeners.active() });
    return ending.end(settings.drainTimeout);
  };
  const admin = createAdminAddresses({
    config,
    defaultAdminAddr: options.defaultAdminAddr,
    open: (address, list, audience) =>
      openAdminServer(address, list, logger.for("admin"), audience, handed.forProcess(audience)),
  });
  ending.at("admin", admin.close);
  let lingerMs = 0;
  const upgrade = createUpgrade({
    clock,
    logger: logger.for("upgrade"),
    store: doors.store,
    limits: doors.limits,
    sockets: () => handedSockets(options.sources, settings, listeners.ports(), admin.ports),
    // The sockets of several threads cannot be handed over.
    start: crew === undefined ? options.startSuccessor : undefined,
    reopenStore: () => openConfiguredStore(doors.store, config),
    isEnding: () => ending.hasBegun,
    leave() {
      lingerMs = LINGER_MS;
      // The new process answers there now.
      admin.close();
      void stop();
    },
  });
  ending.at("listeners", async (drainMs) => {
    await listeners.close(drainMs, lingerMs);
    upgrade.lastWord();
  });

  // What operators see.
  const parts = { version, startedMs, ui, sources, settings, records, heap, listeners, reloads, ending, stop };
  const { all, statistics } = operatorEndpoints(doors, { ...parts, upgrade: upgrade.run });
  const shown = (list: readonly AdminEndpoint[]) => (crew ? mergedEndpoints(list, crew.ask) : list);
  endpoints.push(...shown(all));

  // Open and serve.
  const adminUrl = await admin.open(endpoints, shown(statistics));
  await predecessor?.takeBuckets(doors.limits);
  await listeners.apply(config.topology);
  for (const { fd, name, port } of inherited.unused()) logger.warn("inherited socket is not used", { fd, name, port });
  handed.closeUnused(inherited.unused());
  first.serves();
  for (const warning of config.warnings) logger.for("config").warn(warning);
  if (adminUrl !== undefined) logger.for("admin").info("admin interface", { ui: `${adminUrl}${ADMIN_PATHS.ui}` });
  logger.info("started", { version, node: process.version, ms: Math.round(clock.monotonicMs() - startedMs) });

  // Reload.
  if (sources.canChange) ending.at("watch", watchConfig(doors, loader, reloads, first.content).stop);
  if (options.cluster) ending.at("watch", followCluster(options.cluster, reloads, config).stop);
  predecessor?.ready(version);

  return {
    topology: () => reloads.running().topology,
    ports: listeners.ports,
    adminUrl,
    upgrade: upgrade.run,
    stop,
    stopped: ending.ended,
    unexpected: (error) => unexpected.report("process", error),
  };
}
