/**
 * `/debug/budgets`: every budget with what was spent in this period, read from the store. `?key=` looks through all keys.
 */
import type { LimitRegistry } from "../../core/policy.ts";
import { StoreUnavailable } from "../../store/store.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function budgetsEndpoint(limits: LimitRegistry): AdminEndpoint {
  return {
    path: ADMIN_PATHS.budgets,
    doc: "Budgets with what was spent in this period, the most first; ?key=<text> searches by key.",
    async GET({ query }) {
      try {
        return jsonAnswer({ budgets: await limits.budgets(query.get("key") ?? undefined) });
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        return jsonAnswer({ error: error.message }, 503);
      }
    },
  };
}
