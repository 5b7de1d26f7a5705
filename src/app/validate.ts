/**
 * `gateway --validate-only`: the configuration is loaded and compiled, and nothing is opened or fetched.
 */
import type { Environment } from "../config/env.ts";
import { createLivingThings } from "../config/living.ts";
import { prepareConfig } from "../config/prepare.ts";
import { openSources, type SourceList } from "../config/sources.ts";
import { createLimitRegistry } from "../core/limit-registry.ts";
import type { Clock } from "../lib/clock.ts";
import { silentLogger } from "../lib/logger.ts";
import { createMetrics } from "../lib/metrics.ts";
import { createTasks } from "../lib/tasks.ts";
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
