/**
 * Lists all admin endpoints (spec 4.2), in the order of the index page.
 */

import type { Clock } from "../base/clock.ts";
import type { Tasks } from "../base/tasks.ts";
import type { Exchange } from "../core/exchange.ts";
import type { LimitRegistry } from "../core/policy.ts";
import type { Topology } from "../core/topology.ts";
import type { DryReport } from "../pipeline/dry-run/dry-report.ts";
import type { History } from "../record/history/history.ts";
import type { Logger, Logging } from "../record/log/logger.ts";
import type { MirrorReport, ShadowReport } from "../record/policy-reports.ts";
import type { RecentRequests } from "../record/recent-requests.ts";
import type { RequestHistory } from "../record/recorded-request.ts";
import type { KeptTraces, TraceHub } from "../record/trace/trace.ts";
import type { TrafficHistory } from "../record/traffic.ts";
import type { Store } from "../store/store.ts";
import { type AccessParts, accessEndpoint } from "./endpoints/access.ts";
import { celEndpoint, configDumpEndpoint } from "./endpoints/config.ts";
import { type KeyStore, keysEndpoint } from "./endpoints/keys.ts";
import { mcpConnectionsEndpoint, mcpLockEndpoint, mcpSessionsEndpoint, mcpToolsEndpoint } from "./endpoints/mcp.ts";
import {
  indexEndpoint,
  loggingEndpoint,
  memoryEndpoint,
  quitEndpoint,
  type UpgradeResult,
  upgradeEndpoint,
} from "./endpoints/process.ts";
import { type HeapSampling, profileEndpoints } from "./endpoints/profile.ts";
import { budgetsEndpoint, limitsEndpoint, mirrorsEndpoint, shadowEndpoint } from "./endpoints/reports.ts";
import { historyEndpoint, requestsEndpoint, traceEndpoint } from "./endpoints/requests.ts";
import { countTasks, tasksEndpoint } from "./endpoints/tasks.ts";
import { usageDeleteEndpoint, usageEndpoint, usageStatusEndpoint } from "./endpoints/usage.ts";
import { usageBudgetsEndpoint } from "./endpoints/usage-budgets.ts";
import {
  type RehearseParts,
  recordingEndpoint,
  rehearseEndpoint,
  type WhatIf,
  whatIfEndpoint,
} from "./endpoints/what-if.ts";
import type { AdminEndpoint } from "./server/endpoint.ts";

export interface AdminParts {
  readonly version: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly logging: Logging;
  readonly hub: TraceHub<Exchange>;
  readonly recent: RecentRequests;
  readonly history: TrafficHistory;
  /** Undefined in worker threads, and if `config.history` is not set. */
  readonly historyDatabase: History | undefined;
  readonly store: Store;
  readonly kept: KeptTraces | undefined;
  readonly limits: LimitRegistry;
  readonly keys: KeyStore;
  readonly tasks: Tasks;
  readonly heap: HeapSampling;
  readonly statistics: readonly AdminEndpoint[];
  readonly ui: AdminEndpoint;
  readonly docs: AdminEndpoint;
  upMs(): number;
  dump(): Readonly<Record<string, unknown>>;
  topology(): Topology;
  readonly mayEdit: boolean;
  shadow(): ShadowReport;
  mirrors(): MirrorReport;
  readonly requestHistory: RequestHistory;
  readonly rehearsals: RehearseParts;
  readonly access: Omit<AccessParts, "topology">;
  whatIf(question: WhatIf): Promise<DryReport>;
  active(): { connections: number; requests: number };
  shutDown(): void;
  upgrade(): Promise<UpgradeResult>;
}

export function allEndpoints(parts: AdminParts): AdminEndpoint[] {
  const { clock, recent, limits, tasks, heap, kept } = parts;
  const endpoints = [
    configDumpEndpoint(parts.dump),
    loggingEndpoint(parts.logging),
    quitEndpoint(parts.shutDown),
    upgradeEndpoint(parts.upgrade),
    ...parts.statistics,
    traceEndpoint(parts.hub, clock),
    requestsEndpoint(recent, parts.requestHistory, clock),
    historyEndpoint(parts.history),
    usageEndpoint(parts.historyDatabase, clock),
    usageStatusEndpoint(parts.historyDatabase),
    usageBudgetsEndpoint(parts.historyDatabase, parts.store, clock),
    usageDeleteEndpoint(parts.historyDatabase),
    limitsEndpoint(limits),
    budgetsEndpoint(limits),
    keysEndpoint(parts.keys),
    tasksEndpoint(tasks, recent, parts.upMs),
    memoryEndpoint({
      requests: () => recent.counts,
      keptTraces: () => kept?.report() ?? null,
      limits: () => limits.views().map(({ owner, bucketsInUse }) => ({ owner, bucketsInUse })),
      connections: parts.active,
      tasks: () => countTasks(tasks.report()),
      pools: () => describePools(parts.topology()),
    }),
    mcpToolsEndpoint(parts.topology),
    mcpLockEndpoint(parts),
    mcpConnectionsEndpoint(parts.topology),
    mcpSessionsEndpoint(parts.topology),
    celEndpoint(recent),
    whatIfEndpoint(parts.whatIf),
    accessEndpoint({ ...parts.access, topology: parts.topology }),
    shadowEndpoint(parts.shadow),
    mirrorsEndpoint(parts.mirrors),
    recordingEndpoint(parts.requestHistory, clock),
    rehearseEndpoint(parts.rehearsals),
    ...profileEndpoints({ clock, logger: parts.logger, heap, platform: process.platform }),
    parts.ui,
    parts.docs,
  ];
  return [...endpoints, indexEndpoint(parts.version, endpoints)];
}

function describePools({ listeners }: Topology) {
  return listeners
    .flatMap(({ routes }) => routes.flatMap(({ backends }) => backends))
    .map(({ backend }) => ({ backend: backend.attributes.name, connections: backend.describe().connections ?? null }));
}
