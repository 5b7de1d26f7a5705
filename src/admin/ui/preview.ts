/**
 * Previews an edited configuration in the UI. It compiles the configuration without serving it.
 */
import type { Clock } from "../../base/clock.ts";
import { openDryConfig } from "../../config/dry-config.ts";
import { configDump } from "../../config/dump.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";

export interface Preview {
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
  /** Undefined if the configuration was rejected. */
  readonly dump: Readonly<Record<string, unknown>> | undefined;
}

export type PreviewConfig = (sources: readonly SourceText[]) => Preview;

export function createPreview(options: { clock: Clock; environment: Environment }): PreviewConfig {
  return (sources) => {
    const { prepared, close } = openDryConfig(sources, options);
    try {
      if (!prepared.ok) return { problems: prepared.problems, warnings: [], dump: undefined };
      const dump = configDump({
        ...prepared,
        ...prepared.settings,
        version: "",
        reload: { loadedAt: "", generation: 0, warnings: [], sources: [], needsRestart: [] },
        ports: new Map(),
      });
      return { problems: [], warnings: prepared.warnings, dump };
    } finally {
      close();
    }
  };
}
