/**
 * Warns about an admin address that other machines can reach, because the admin interface has no authentication.
 */
import { ConfigError } from "../../core/config-error.ts";
import { canonicalAddress, hostOf, isLoopbackHost } from "../../http/host.ts";
import type { NormalConfig } from "../load/normal-config.ts";
import type { SourceDocument } from "../text/yaml-source.ts";

export function exposedAdminWarnings({ process }: NormalConfig, document: SourceDocument): ConfigError[] {
  const { adminAddr, allowConfigEdit } = process;
  if (adminAddr === undefined || adminAddr === "off" || adminAddr.startsWith("unix:")) return [];
  if (isLoopbackHost(canonicalAddress(hostOf(adminAddr)))) return [];
  const edits = allowConfigEdit === true ? ", change the configuration" : "";
  const message = `other machines can reach the admin interface at ${adminAddr}, which asks for no authentication: anyone who connects can read the configuration, requests, and traces${edits}, create API keys, and stop the gateway. Use a loopback address such as 127.0.0.1, or unix:<path>`;
  return [new ConfigError(document.position(["config", "adminAddr"]), "config.adminAddr", message)];
}
