/**
 * `gateway --validate-only`: the configuration is loaded and compiled, and nothing is opened or fetched.
 */

import { createLimitRegistry } from "../config/compile/limit-registry.ts";
import { createLivingThings } from "../config/compile/living.ts";
import { openSources, type SourceList } from "../config/load/sources.ts";
import { type Finding, prepareConfig } from "../config/prepare.ts";
import type { Environment } from "../config/text/env.ts";
import { ConfigError } from "../core/errors.ts";
import { silentLogger } from "../lib/log/logger.ts";
import { createMetrics } from "../lib/log/metrics.ts";
import type { Clock } from "../lib/process/clock.ts";
import { createTasks } from "../lib/process/tasks.ts";
import { noSigningKey } from "../lib/store/signing-key.ts";
import { noStore } from "../lib/store/store.ts";

export interface ValidateOptions {
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  /** Variables that are not set are noted, and everything else is checked. */
  readonly allowMissingEnv?: boolean;
  readStdin(): string;
}

/** All that was found; valid unless there is an error among it. */
export function validateOnly(options: ValidateOptions): readonly Finding[] {
  const { clock, environment } = options;
  const generation = createLivingThings(() => undefined).begin();
  try {
    const prepared = prepareConfig(openSources(options.sources, options.readStdin).read(), {
      clock,
      environment,
      // Validation probes nothing: what would be fetched fails at once and is nobody's loss.
      fetch: () => Promise.reject(new Error("validation only")),
      logger: silentLogger,
      tasks: createTasks(clock),
      metrics: createMetrics(),
      limits: createLimitRegistry(),
      store: noStore,
      signingKey: noSigningKey,
      redaction: undefined,
      generation,
      fileRead: () => undefined,
      allowUnset: options.allowMissingEnv === true,
    });
    return prepared.findings ?? [];
  } catch (error) {
    // A path that cannot be read.
    if (!(error instanceof ConfigError)) throw error;
    return [{ severity: "error", problem: error }];
  } finally {
    generation.discard();
  }
}
