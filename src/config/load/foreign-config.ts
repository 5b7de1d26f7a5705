/**
 * Loads a configuration of another program: converts its text, and then loads the result.
 */
import { createRequire } from "node:module";
import { onDemand } from "../../base/on-demand.ts";
import type { Steps } from "../../base/sliced-work.ts";
import type { ConfigError } from "../../core/config-error.ts";
import type { Environment } from "../text/env.ts";
import { MISSING_VARIABLE, type SourceOptions } from "../text/yaml-source.ts";
import { type LoadedConfig, loadConfig, type SourceText } from "./load.ts";

const require = createRequire(import.meta.url);
const foreignFormat = onDemand<typeof import("../import/direct-load.ts")>(() => require("../import/direct-load.js"));

/** Returns `own`, the result for a configuration of this gateway, unless that is one of a known other program. */
export function* loadForeign(
  own: LoadedConfig,
  sources: readonly SourceText[],
  environment: Environment,
  options: SourceOptions = {},
): Steps<LoadedConfig> {
  const standalone = own.ok ? undefined : own.mismatch?.();
  const source = sources.find(({ file }) => file === standalone?.file);
  if (standalone === undefined || source === undefined) return own;
  const foreign = foreignFormat().convertForeign(standalone, source.text);
  if (foreign === undefined) return own;
  const refuse = (problems: readonly ConfigError[]): LoadedConfig => {
    if (!foreign.isCertain) return own;
    // A conversion does not help if only variables are missing.
    const isConverted = problems.every(({ message }) => message.startsWith(MISSING_VARIABLE));
    return { ok: false, problems: isConverted ? problems : [foreignFormat().notLoadable(standalone), ...problems] };
  };
  if (foreign.problems.length > 0) return refuse(foreign.problems);
  yield;
  const at = standalone.position([]) ?? { file: standalone.file, line: 1, column: 1 };
  const converted = sources.map((one) => (one === source ? { file: one.file, text: foreign.text, at } : one));
  const loaded = yield* loadConfig(converted, environment, options);
  return loaded.ok ? { ...loaded, warnings: foreign.warnings } : refuse(loaded.problems);
}
