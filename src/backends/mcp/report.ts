/**
 * Where the outcome of an MCP request goes: the facts of its exchange, the failure in its records, the metrics. On the
 * old transport the exchange of a message has ended long before its answer goes out: the log tells of a failure then.
 */
import type { BackendCall } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Logger } from "../../lib/log/logger.ts";
import { factsOf } from "../../mcp/clients/message-facts.ts";
import type { Names } from "../../mcp/many/names.ts";
import type { McpMetrics } from "../../mcp/servers/mcp-metrics.ts";
import type { CallReport } from "../../mcp/sessions/call-outcome.ts";
import type { ShadowTold } from "../../mcp/wire/call.ts";

export interface ReportEnv {
  readonly metrics: McpMetrics;
  readonly logger: Logger;
  names(): Names;
}

export function reportTo(env: ReportEnv, exchange: Exchange, call: BackendCall, isOldTransport: boolean): CallReport {
  return {
    get caller() {
      return exchange.attributes;
    },
    get watched(): ShadowTold {
      // The exchange of a message on the old transport ends before its answer comes.
      if (isOldTransport) exchange.awaitsShadow = true;
      // A call that a guard rejects has been counted by limits.
      return (detail, rule) => exchange.deniedInShadow("mcp", detail, { rule, isCounted: true });
    },
    ended(request, routed, { kind, problem }, answer) {
      const facts = exchange.facts.mcp;
      // The facts of a batch name none of its messages.
      const own = facts?.methodName === undefined ? factsOf(request, undefined, env.names()) : facts;
      const target = routed?.name ?? own.tool?.target ?? own.target ?? "";
      exchange.audit?.ended(request.id, target, kind, answer);
      env.metrics.result(target, own.tool?.name ?? "", kind);
      if (facts) {
        if (target !== "") facts.target ??= target;
        if (facts.outcome === undefined || facts.outcome === "ok") facts.outcome = kind;
      }
      if (problem === undefined) return;
      if (!isOldTransport) call.problem(problem);
      else
        env.logger.info("MCP request failed", {
          id: exchange.id,
          "mcp.method": request.method,
          "mcp.target": target,
          "mcp.tool": own.tool?.name,
          "mcp.outcome": kind,
          error: problem.code,
          reason: problem.reason.slice(0, 500),
        });
    },
  };
}
