/**
 * Registers rate limits and budgets for the admin interface and for upgrades.
 */
import type { BudgetView, HandedLimit, LimitRegistry, LimitView } from "../../core/policy.ts";

export function createLimitRegistry(): LimitRegistry {
  const sources = new Set<(key: string | undefined) => readonly LimitView[]>();
  const handed = new Set<HandedLimit>();
  const budgets = new Map<(key: string | undefined) => Promise<readonly BudgetView[]>, { requiresStore: boolean }>();
  return {
    register(view, limit) {
      sources.add(view);
      if (limit !== undefined) handed.add(limit);
      return () => {
        sources.delete(view);
        if (limit !== undefined) handed.delete(limit);
      };
    },
    views: (key) => [...sources].flatMap((view) => view(key)),
    handed: () => [...handed],
    registerBudgets(view, options) {
      budgets.set(view, options);
      return () => budgets.delete(view);
    },
    requiresStore: () => [...budgets.values()].some((options) => options.requiresStore),
    budgets: async (key) => (await Promise.all([...budgets.keys()].map((view) => view(key)))).flat(),
  };
}
