/**
 * `/debug/limits`: every living rate limit rule with its buckets, the emptiest first.
 */
import type { LimitRegistry } from "../../core/policy.ts";
import { type AdminEndpoint, jsonAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

/** The rest is a search away (`?key=`): an answer with 65,536 buckets helps nobody. */
const MAX_BUCKETS = 100;

export function limitsEndpoint(limits: LimitRegistry): AdminEndpoint {
  return {
    path: ADMIN_PATHS.limits,
    doc: "Rate limit rules with their buckets, the emptiest first; ?key=<text> finds buckets by key.",
    GET({ query }) {
      const key = query.get("key");
      const rules = limits.views().map((view) => ({
        ...view,
        buckets: view.buckets.filter((bucket) => key === null || bucket.key.includes(key)).slice(0, MAX_BUCKETS),
      }));
      return jsonAnswer({ rules });
    },
  };
}
