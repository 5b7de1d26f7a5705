/**
 * `/config_dump` (spec 4.2): the loaded runtime configuration as JSON.
 */
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function configDumpEndpoint(dump: () => unknown): AdminEndpoint {
  return {
    path: ADMIN_PATHS.configDump,
    doc: "The loaded configuration (binds, listeners, routes, backends, policies) and the last reload, as JSON.",
    GET: () => jsonAnswer(dump()),
  };
}
