/**
 * Serves reports of policies: `/debug/limits` (rate limit rules with their buckets), `/debug/budgets` (spending in
 * the current period), `/debug/shadow` (requests that policies in shadow mode would have denied), and
 * `/debug/mirrors` (differences between mirrors and backends).
 */
import type { LimitRegistry } from "../../core/policy.ts";
import type { MirrorReport, ShadowReport } from "../../record/policy-reports.ts";
import { StoreUnavailable } from "../../store/store.ts";
import { type AdminEndpoint, jsonResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export function limitsEndpoint(limits: LimitRegistry): AdminEndpoint {
  return {
    path: ADMIN_PATHS.limits,
    doc: "Rate limit rules with their buckets, lowest remaining budget first; ?key=<text> searches by key.",
    GET({ query }) {
      const rules = limits.views(query.get("key") ?? undefined);
      return jsonResponse({ rules });
    },
  };
}

export function budgetsEndpoint(limits: LimitRegistry): AdminEndpoint {
  return {
    path: ADMIN_PATHS.budgets,
    doc: "Budgets with what was spent in this period, the most first; ?key=<text> searches by key.",
    async GET({ query }) {
      try {
        return jsonResponse({ budgets: await limits.budgets(query.get("key") ?? undefined) });
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        return jsonResponse({ error: error.message }, 503);
      }
    },
  };
}

export function shadowEndpoint(report: () => ShadowReport): AdminEndpoint {
  return {
    path: ADMIN_PATHS.shadow,
    doc: "What policies in shadow mode would have denied: rule, subjects, counts, examples.",
    GET: () => jsonResponse(report()),
  };
}

export function mirrorsEndpoint(report: () => MirrorReport): AdminEndpoint {
  return {
    path: ADMIN_PATHS.mirrors,
    doc: "How responses of mirrors differ from the backends': status, shape of JSON, time, examples.",
    GET: () => jsonResponse(report()),
  };
}
