/**
 * What a valid configuration says that cannot work or is probably not meant. Warnings do not stop the start; with
 * `--strict` they fail a validation. Notes only tell.
 */
import type { ConfigError } from "../../core/config-error.ts";
import type { NormalConfig } from "../load/normal-config.ts";
import { byPlace } from "../text/yaml-source.ts";
import { checkCommands } from "./check-commands.ts";
import { checkExpressions } from "./check-expressions.ts";
import { checkOpenListeners, noteSectionPorts } from "./check-listeners.ts";
import { checkPolicy } from "./check-policies.ts";
import { sitedPolicies } from "./site.ts";

export interface Checked {
  readonly warnings: readonly ConfigError[];
  readonly notes: readonly ConfigError[];
}

export function checkConfig(config: NormalConfig): Checked {
  const warnings: ConfigError[] = [];
  const notes: ConfigError[] = [];
  const warn = (warning: ConfigError): void => void warnings.push(warning);
  for (const sited of sitedPolicies(config)) {
    checkPolicy(sited, warn);
    checkExpressions(sited, warn);
  }
  checkCommands(config, warn);
  checkOpenListeners(config, warn);
  noteSectionPorts(config, (note) => void notes.push(note));
  return { warnings: unique(warnings).sort(byPlace), notes };
}

/** A document that is attached to two targets says it once. */
function unique(list: readonly ConfigError[]): ConfigError[] {
  const lines = list.map((one) => one.toLine());
  return list.filter((_, i) => lines.indexOf(lines[i] as string) === i);
}
