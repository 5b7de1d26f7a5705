/**
 * Compiles a configuration without serving it, for example for validation. Files are read, but nothing is fetched,
 * stored, or scheduled.
 */

import type { Clock } from "../base/clock.ts";
import { createMemoryBudget } from "../base/memory-budget.ts";
import { finish } from "../base/sliced-work.ts";
import { createTasks } from "../base/tasks.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import { createDryRunner, type DryRunner } from "../pipeline/dry-run/dry-run.ts";
import { dryEnv } from "../pipeline/dry-run/dry-topology.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createMetrics } from "../record/log/metrics.ts";
import { noSigningKey } from "../store/signing-key.ts";
import { noStore } from "../store/store.ts";
import { createLimitRegistry } from "./compile/limit-registry.ts";
import { createResourceRegistry } from "./compile/resource-registry.ts";
import type { SourceText } from "./load/load.ts";
import { type Prepared, type PreparedConfig, prepareConfig } from "./prepare.ts";
import type { Environment } from "./text/env.ts";

export interface DryConfigOptions {
  readonly environment: Environment;
  readonly clock: Clock;
  /** True to report unset variables as notes instead of errors. */
  readonly allowMissingEnv?: boolean;
}

export interface DryConfig {
  readonly prepared: Prepared;
  close(): void;
}

export function openDryConfig(sources: readonly SourceText[], options: DryConfigOptions): DryConfig {
  const clock = withoutTimers(options.clock);
  const generation = createResourceRegistry(() => undefined).begin();
  try {
    const preparing = prepareConfig(sources, {
      clock,
      environment: options.environment,
      fetcher: { of: () => () => Promise.reject(new Error("nothing is fetched here")) },
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
      dry: dryEnv,
      egress: (origin) => EgressGuard.for(origin).closed(),
      allowUnset: options.allowMissingEnv === true,
    });
    return { prepared: finish(preparing), close: () => generation.discard() };
  } catch (error) {
    generation.discard();
    throw error;
  }
}

/** Returns the engine that tests, what-if questions, rehearsals, and access reviews ask. */
export function dryRunnerOf({ topology, settings }: PreparedConfig, clock: Clock): DryRunner {
  return createDryRunner(topology, settings.redaction, clock, settings.process.trustedProxies);
}

/** Timers never fire, so that nothing retries or refreshes. */
function withoutTimers(clock: Clock): Clock {
  const never = { cancel: () => undefined };
  return {
    now: () => clock.now(),
    monotonicMs: () => clock.monotonicMs(),
    after: () => never,
    every: () => never,
  };
}
