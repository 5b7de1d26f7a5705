/**
 * `gateway --validate-only`: the configuration is loaded and compiled, and nothing is opened or fetched.
 */

import type { Clock } from "../base/clock.ts";
import { openSources, type SourceList } from "../config/load/load.ts";
import type { Finding } from "../config/prepare.ts";
import type { Environment } from "../config/text/env.ts";
import { ConfigError } from "../core/config-error.ts";
import { openDryConfig } from "./change/dry-config.ts";

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
  try {
    const { prepared, close } = openDryConfig(openSources(options.sources, options.readStdin).read(), options);
    close();
    return prepared.findings ?? [];
  } catch (error) {
    // A path that cannot be read.
    if (!(error instanceof ConfigError)) throw error;
    return [{ severity: "error", problem: error }];
  }
}
