/**
 * `/config_dump` (spec 4.2): the loaded runtime configuration as JSON.
 */
import { inTurns } from "../../base/turns.ts";
import { safeJsonInSteps } from "../../json/safe-json.ts";
import type { AdminEndpoint } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function configDumpEndpoint(dump: () => Readonly<Record<string, unknown>>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.configDump,
    doc: "The loaded configuration (binds, listeners, routes, backends, policies) and the last reload, as JSON.",
    async GET() {
      const body = `${await inTurns(safeJsonInSteps(dump()), () => false)}\n`;
      return { status: 200, type: "application/json", body };
    },
  };
}
