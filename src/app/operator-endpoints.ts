/**
 * Builds the admin endpoints. Statistics are a separate list, because the stats address serves only those.
 */

import { allEndpoints } from "../admin/all-endpoints.ts";
import { statsEndpoints } from "../admin/endpoints/process.ts";
import { noHeapSampling, startHeapSampling } from "../admin/endpoints/profile.ts";
import { type AdminEndpoint, redactedEndpoint } from "../admin/server/endpoint.ts";
import { ADMIN_PATHS } from "../admin/server/paths.ts";
import type { Ui } from "../admin/ui/ui.ts";
import type { HeapPressure } from "../base/heap-pressure.ts";
import { Owner } from "../base/owner.ts";
import { configDumpInParts } from "../config/dump.ts";
import type { Sources } from "../config/load/load.ts";
import type { ProcessSettings } from "../config/prepare.ts";
import { createStoredKeys, storedKeyIdentity } from "../identity/passwords/stored-keys.ts";
import type { Listeners } from "../pipeline/listen/listeners.ts";
import { keySpending } from "../policies/api-key/policy.ts";
import type { History } from "../record/history/history.ts";
import type { MetricFamily } from "../record/log/metrics.ts";
import { recordedLines } from "../record/recorded-request.ts";
import type { RequestRecords } from "../record/request-records.ts";
import { createRehearsals, RehearsalBusy } from "./rehearsal/rehearsals.ts";
import { variablesForRehearsal } from "./rehearsal/rehearse.ts";
import type { Reloads } from "./reload.ts";
import type { Services } from "./services.ts";
import type { Shutdown } from "./shutdown.ts";
import type { UpgradeOutcome } from "./upgrade/upgrade.ts";
import { whatIf } from "./validate.ts";

/** A new API key must be readable once, and the files of the UI contain no secrets. */
const NOT_REDACTED: readonly string[] = [ADMIN_PATHS.keys, ADMIN_PATHS.ui];

export interface OperatorParts {
  readonly version: string;
  readonly startedMs: number;
  readonly ui: Ui;
  readonly sources: Pick<Sources, "canChange" | "read">;
  readonly settings: ProcessSettings;
  readonly records: RequestRecords;
  readonly historyDatabase?: History | undefined;
  readonly heap: HeapPressure;
  readonly listeners: Listeners;
  readonly reloads: Pick<Reloads, "running" | "state">;
  readonly shutdown: Shutdown;
  /** Returns the metrics of all threads. */
  collectMetrics(): Promise<readonly MetricFamily[]>;
  stop(): Promise<void>;
  upgrade(): Promise<UpgradeOutcome>;
}

export interface OperatorEndpoints {
  readonly all: readonly AdminEndpoint[];
  readonly statistics: readonly AdminEndpoint[];
}

export function operatorEndpoints(services: Services, parts: OperatorParts): OperatorEndpoints {
  const { clock, environment, fetcher, logger, logging, tasks, limits, store } = services;
  const { version, startedMs, ui, sources, records, heap, listeners, reloads, shutdown } = parts;
  const { process: settings, redaction } = parts.settings;

  const sampling = process.platform === "linux" && settings.adminAddr !== "off" ? startHeapSampling() : noHeapSampling;
  shutdown.at("measuring", sampling.stop);

  const mayEdit = sources.canChange && settings.allowConfigEdit === true;
  const rehearsals = createRehearsals(clock);
  const notReady = (): string[] => {
    if (shutdown.hasBegun) return ["draining"];
    if (heap.level === "full") return ["memory"];
    const isStoreMissing = limits.requiresStore() && store.health().state !== "up";
    return isStoreMissing ? ["store", ...listeners.notServing()] : listeners.notServing();
  };
  const statistics = statsEndpoints({ collectMetrics: parts.collectMetrics, notReady });
  const all = allEndpoints({
    version,
    clock,
    logger: logger.for("admin"),
    logging,
    hub: records.hub,
    recent: records.recent,
    history: records.history,
    historyDatabase: parts.historyDatabase,
    store,
    kept: records.kept,
    limits,
    keys: {
      ...createStoredKeys(store, clock),
      spent: (key) => keySpending(store, clock, key),
      nowMs: () => clock.now(),
    },
    tasks,
    heap: sampling,
    statistics,
    ui: ui.endpoint({
      clock,
      environment,
      fetch: fetcher.of(Owner.standalone),
      redaction,
      mayEdit,
      read: sources.read,
      listeners: () => reloads.running().topology.listeners,
      ports: listeners.ports,
    }),
    docs: ui.docs,
    upMs: () => clock.monotonicMs() - startedMs,
    dump() {
      const { topology, resources, services } = reloads.running();
      const [reload, ports] = [reloads.state(), listeners.ports()];
      return configDumpInParts({ topology, process: settings, resources, services, redaction, version, reload, ports });
    },
    mayEdit,
    topology: () => reloads.running().topology,
    shadow: records.shadow.report,
    mirrors: records.mirrors.report,
    requestHistory: records.requestHistory,
    rehearsals: {
      isBusy: (error) => error instanceof RehearsalBusy,
      rehearse(after, requestHistory, left) {
        const before = reloads.running().sources;
        const input = { before, after, ...variablesForRehearsal(before, after, environment) };
        return rehearsals.run({ input, segments: requestHistory ?? [recordedLines(records.requestHistory)] }, left);
      },
    },
    access: {
      isBusy: (error) => error instanceof RehearsalBusy,
      async review({ claimSets, items, after, tools }, requestHistory, clientGone) {
        const { sources } = reloads.running();
        const variables = after === undefined ? { environment } : variablesForRehearsal(sources, after, environment);
        const storedKeys = (await createStoredKeys(store, clock).list()).map(storedKeyIdentity);
        const access = { sources, after, environment: variables.environment, storedKeys, claimSets, tools, items };
        return rehearsals.run(
          { access, segments: requestHistory ?? [recordedLines(records.requestHistory)] },
          clientGone,
        );
      },
    },
    whatIf: (question) => whatIf(question, reloads.running().sources, { clock, environment }),
    active: listeners.active,
    shutDown: () => void parts.stop(),
    upgrade: parts.upgrade,
  });
  const shown = (endpoint: AdminEndpoint): AdminEndpoint =>
    NOT_REDACTED.includes(endpoint.path) ? endpoint : redactedEndpoint(endpoint, redaction);
  return { all: all.map(shown), statistics: statistics.map(shown) };
}
