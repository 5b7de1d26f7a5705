/**
 * `/debug/limits`: every living rate limit rule with its buckets, the emptiest first. A rule shows a list that a person
 * can read; `?key=` looks through all of its buckets.
 */
import type { LimitRegistry } from "../../core/policy.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function limitsEndpoint(limits: LimitRegistry): AdminEndpoint {
  return {
    path: ADMIN_PATHS.limits,
    doc: "Rate limit rules with their buckets, lowest remaining budget first; ?key=<text> searches by key.",
    GET({ query }) {
      const rules = limits.views(query.get("key") ?? undefined);
      return jsonAnswer({ rules });
    },
  };
}
