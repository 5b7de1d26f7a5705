/**
 * Where limiters show themselves: the admin interface asks here for all living rules and their buckets.
 */
import type { LimitRegistry, LimitView } from "../../core/policy.ts";

export function createLimitRegistry(): LimitRegistry {
  const sources = new Set<(key: string | undefined) => readonly LimitView[]>();
  return {
    register(view) {
      sources.add(view);
      return () => void sources.delete(view);
    },
    views: (key) => [...sources].flatMap((view) => view(key)),
  };
}
