/**
 * `gateway --validate-only`: the configuration is loaded and compiled, and nothing is opened or fetched.
 */

import { createLivingThings } from "../config/compile/living.ts";
import { openSources, type SourceList } from "../config/load/sources.ts";
import { prepareConfig } from "../config/prepare.ts";
import type { Environment } from "../config/text/env.ts";
import { createLimitRegistry } from "../core/limit-registry.ts";
import { silentLogger } from "../lib/log/logger.ts";
import { createMetrics } from "../lib/log/metrics.ts";
import type { Clock } from "../lib/process/clock.ts";
import { createTasks } from "../lib/process/tasks.ts";
import { orStartError, StartError } from "./start-error.ts";

export interface ValidateOptions {
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readStdin(): string;
}

/** The warnings of a valid configuration; throws StartError for any other. */
export function validateOnly({ sources, environment, clock, readStdin }: ValidateOptions): readonly string[] {
  const generation = createLivingThings(() => undefined).begin();
  const prepared = prepareConfig(orStartError(openSources(sources, readStdin).read), {
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
