/**
 * A configuration compiled beside the running one, or without one, with services that lead nowhere: nothing is fetched,
 * listened on or started, timers never fire, and its limits count for nobody else.
 */

import type { Clock } from "../../base/clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { createTasks } from "../../base/tasks.ts";
import { createLimitRegistry } from "../../config/compile/limit-registry.ts";
import { createResourceRegistry } from "../../config/compile/resource-registry.ts";
import type { SourceText } from "../../config/load/load.ts";
import { type Prepared, prepareConfig } from "../../config/prepare.ts";
import type { Environment } from "../../config/text/env.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMetrics } from "../../observe/log/metrics.ts";
import { noSigningKey } from "../../store/signing-key.ts";
import { noStore } from "../../store/store.ts";

export interface DryConfigOptions {
  readonly environment: Environment;
  readonly clock: Clock;
  /** Variables that are not set are noted, and everything else is checked. */
  readonly allowMissingEnv?: boolean;
}

export interface DryConfig {
  readonly prepared: Prepared;
  /** Closes what compiling it opened. */
  close(): void;
}

export function openDryConfig(sources: readonly SourceText[], options: DryConfigOptions): DryConfig {
  const clock = withoutTimers(options.clock);
  const generation = createResourceRegistry(() => undefined).begin();
  try {
    const prepared = prepareConfig(sources, {
      clock,
      environment: options.environment,
      fetch: () => Promise.reject(new Error("nothing is fetched here")),
      logger: silentLogger,
      tasks: createTasks(clock),
      metrics: createMetrics(),
      limits: createLimitRegistry(),
      memory: createMemoryBudget(clock),
      store: noStore,
      signingKey: noSigningKey,
      redaction: undefined,
      generation,
      fileRead: () => undefined,
      isDry: true,
      allowUnset: options.allowMissingEnv === true,
    });
    return { prepared, close: () => generation.discard() };
  } catch (error) {
    generation.discard();
    throw error;
  }
}

/** Nothing happens later: neither a retry nor a refresh. */
function withoutTimers(clock: Clock): Clock {
  const never = { cancel: () => undefined };
  return {
    now: () => clock.now(),
    monotonicMs: () => clock.monotonicMs(),
    after: () => never,
    every: () => never,
  };
}
