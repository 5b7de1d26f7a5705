/**
 * Reads the configuration of a data plane's process, which the controller passes in variables and files.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Environment } from "../config/text/env.ts";

/** A data plane opens the stats address for the probes of its pod. */
export const DATA_PLANE_CONFIG = { statsAddr: "0.0.0.0:15020", logging: { format: "json" } } as const;

export const SECRET_VARIABLE = "GATEWAY_CONFIG_SECRET_";

/**
 * Returns the text of the configuration and the environment with the variables that it contains. Secrets are files,
 * because the variables of a process are visible in its diagnostic reports and to its child processes.
 */
export function processConfig(environment: Environment): { readonly text: string; readonly environment: Environment } {
  const { GATEWAY_CONFIG: text, GATEWAY_CONFIG_SECRETS: folder, ...variables } = environment;
  return {
    text: text ?? JSON.stringify({ config: DATA_PLANE_CONFIG }),
    environment: folder === undefined ? variables : { ...variables, ...secretsIn(folder) },
  };
}

function secretsIn(folder: string): Record<string, string> {
  const names = readdirSync(folder).filter((name) => /^\d+$/.test(name));
  return Object.fromEntries(
    names.map((name) => [
      `${SECRET_VARIABLE}${name}`,
      // A value created from a file often ends with an unintended line break.
      readFileSync(join(folder, name), "utf8").replace(/\r?\n$/, ""),
    ]),
  );
}
