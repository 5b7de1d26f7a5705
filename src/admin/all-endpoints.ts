/**
 * THE list of admin endpoints (spec 4.2): one line each, in the order of the index page.
 */
import type { Exchange } from "../core/exchange.ts";
import type { LimitRegistry } from "../core/policy.ts";
import type { Topology } from "../core/topology.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger, Logging } from "../lib/logger.ts";
import type { Tasks } from "../lib/tasks.ts";
import type { RecentRequests } from "../pipeline/recent-requests.ts";
import type { TraceHub } from "../trace/hub.ts";
import type { KeptTraces } from "../trace/kept-traces.ts";
import { celEndpoint } from "./cel.ts";
import { configDumpEndpoint } from "./config-dump.ts";
import type { AdminEndpoint } from "./endpoint.ts";
import type { HeapSampling } from "./heap-sampling.ts";
import { indexEndpoint } from "./index-page.ts";
import { limitsEndpoint } from "./limits.ts";
import { loggingEndpoint } from "./logging.ts";
import { memoryEndpoint } from "./memory.ts";
import { profileEndpoints } from "./profile.ts";
import { quitEndpoint } from "./quit.ts";
import { requestsEndpoint } from "./requests.ts";
import { countTasks, tasksEndpoint } from "./tasks.ts";
import { traceEndpoint } from "./trace.ts";

export interface AdminParts {
  readonly version: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly logging: Logging;
  readonly hub: TraceHub<Exchange>;
  readonly recent: RecentRequests;
  readonly kept: KeptTraces | undefined;
  readonly limits: LimitRegistry;
  readonly tasks: Tasks;
  readonly heap: HeapSampling;
  /** `/metrics` and `/healthz/*`, which other addresses may serve too. */
  readonly statistics: readonly AdminEndpoint[];
  readonly ui: AdminEndpoint;
  upMs(): number;
  dump(): unknown;
  topology(): Topology;
  active(): { connections: number; requests: number };
  shutDown(): void;
}

export function allEndpoints(parts: AdminParts): AdminEndpoint[] {
  const { clock, recent, limits, tasks, heap, kept } = parts;
  const endpoints = [
    configDumpEndpoint(parts.dump),
    loggingEndpoint(parts.logging),
    quitEndpoint(parts.shutDown),
    ...parts.statistics,
    traceEndpoint(parts.hub, clock),
    requestsEndpoint(recent, clock),
    limitsEndpoint(limits),
    tasksEndpoint(tasks, recent, parts.upMs),
    memoryEndpoint({
      requests: () => recent.counts,
      keptTraces: () => kept?.report() ?? null,
      limits: () => limits.views().map(({ owner, bucketsInUse }) => ({ owner, bucketsInUse })),
      connections: parts.active,
      tasks: () => countTasks(tasks.report()),
      pools: () => poolsOf(parts.topology()),
    }),
    celEndpoint(recent),
    ...profileEndpoints({ clock, logger: parts.logger, heap, platform: process.platform }),
    parts.ui,
  ];
  return [...endpoints, indexEndpoint(parts.version, endpoints)];
}

function poolsOf({ listeners }: Topology) {
  return listeners
    .flatMap(({ routes }) => routes.flatMap(({ backends }) => backends))
    .map(({ backend }) => ({ backend: backend.facts.name, connections: backend.describe().connections ?? null }));
}
