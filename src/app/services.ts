/**
 * Opens the I/O interfaces and registries of the process, which are passed to other components.
 */

import type { Clock } from "../base/clock.ts";
import { nodeFlags } from "../base/heap-pressure.ts";
import { fittingMemoryLimits, MemoryBudget, type MemoryLimits } from "../base/memory-budget.ts";
import { createTasks, type Tasks } from "../base/tasks.ts";
import { createLimitRegistry } from "../config/compile/limit-registry.ts";
import { createResourceRegistry, type ResourceRegistry } from "../config/compile/resource-registry.ts";
import type { Environment } from "../config/text/env.ts";
import type { LimitRegistry } from "../core/policy.ts";
import { openFetcher } from "../http/client/fetcher.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import type { Fetcher } from "../http/fetch.ts";
import type { LogOutput } from "../record/log/log-output.ts";
import {
  createLogging,
  createUnexpectedErrors,
  type LogFilter,
  type Logger,
  type Logging,
  parseLogFilter,
  type UnexpectedErrors,
} from "../record/log/logger.ts";
import { createMetrics, type Metrics } from "../record/log/metrics.ts";
import { type ConfigurableStore, createConfigurableStore } from "../store/open-store.ts";
import { type ConfigurableSigningKey, createSigningKey } from "../store/signing-key.ts";
import { StartError } from "./start-error.ts";

export interface Services {
  readonly clock: Clock;
  readonly environment: Environment;
  readonly logging: Logging;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly unexpected: UnexpectedErrors;
  readonly tasks: Tasks;
  readonly limits: LimitRegistry;
  /** Limits the memory that clients can make this thread retain. */
  readonly memory: MemoryBudget;
  /** The store and the signing key are opened after the configuration is loaded. */
  readonly store: ConfigurableStore;
  readonly signingKey: ConfigurableSigningKey;
  readonly fetcher: Fetcher;
  readonly resources: ResourceRegistry;
}

export interface ServiceOptions {
  readonly clock: Clock;
  readonly environment: Environment;
  readonly output: LogOutput;
  readonly color?: boolean;
  /** This many threads share the memory of the process. Default: 1. */
  readonly threads?: number;
  /** Overrides the limits derived from the machine, in tests. */
  readonly memoryLimits?: Partial<MemoryLimits>;
}

export function openServices(options: ServiceOptions): Services {
  const { clock, environment, output, color = false, threads = 1 } = options;
  const logging = createLogging({ clock, output, color, filter: logFilter("info"), format: "text" });
  const { logger } = logging;
  const metrics = createMetrics();
  const limits = { ...fittingMemoryLimits(nodeFlags(environment.NODE_OPTIONS), threads), ...options.memoryLimits };
  const memory = new MemoryBudget(limits, clock);
  const store = createConfigurableStore({ clock, logger: logger.for("store"), metrics, memory });
  return {
    clock,
    environment,
    logging,
    logger,
    metrics,
    unexpected: createUnexpectedErrors({ clock, logger, metrics }),
    tasks: createTasks(clock),
    limits: createLimitRegistry(),
    memory,
    store,
    signingKey: createSigningKey(store, clock, logger.for("store")),
    fetcher: openFetcher(clock, EgressGuard.for("configuration")),
    resources: createResourceRegistry((key, error) =>
      logger.warn("could not close", { what: key.split("\n", 1)[0] ?? "", error: String(error) }),
    ),
  };
}

export function logFilter(text: string): LogFilter {
  const parsed = parseLogFilter(text);
  if (!parsed.ok) throw new StartError([`log filter: ${parsed.error}`]);
  return parsed.filter;
}
