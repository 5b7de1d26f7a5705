/**
 * Reports the outcome of an MCP request to the attributes of its exchange, the request records, and the metrics. With
 * the HTTP+SSE transport, the exchange of a message ends before its response is sent, so a failure is logged instead.
 */

import type { ResponseReceiver } from "../core/backend.ts";
import type { CelAttributes } from "../core/cel-attributes.ts";
import type { Exchange } from "../core/exchange.ts";
import type { CalledTool } from "../core/mcp-arguments.ts";
import type { McpAttributes } from "../core/request-attributes.ts";
import type { Logger } from "../record/log/logger.ts";
import type { Names } from "./aggregation/names.ts";
import { addressedItem } from "./protocol/access.ts";
import type { GuardReporter, RoutedTarget, ShadowReporter } from "./protocol/call.ts";
import type { ClientMessage, ClientRequest } from "./protocol/json-rpc.ts";
import type { McpMetrics } from "./server-side/mcp-metrics.ts";
import type { CallOutcome, CallReport } from "./session/call-outcome.ts";

export interface ReportServices {
  readonly metrics: McpMetrics;
  readonly logger: Logger;
  names(): Names;
}

export class RequestReport implements CallReport {
  readonly #env: ReportServices;
  readonly #exchange: Exchange;
  readonly #call: ResponseReceiver;
  readonly #isOldTransport: boolean;

  constructor(env: ReportServices, exchange: Exchange, call: ResponseReceiver, isOldTransport: boolean) {
    this.#env = env;
    this.#exchange = exchange;
    this.#call = call;
    this.#isOldTransport = isOldTransport;
  }

  get caller(): CelAttributes {
    return this.#exchange.celAttributes;
  }

  get watched(): ShadowReporter {
    const exchange = this.#exchange;
    if (this.#isOldTransport) exchange.shadow.isPending = true;
    // Rate limits counted the call before a guard could reject its result.
    return (detail, rule) => exchange.deniedInShadow("mcp", detail, { rule, isCounted: true });
  }

  get guarded(): GuardReporter {
    const { trace } = this.#exchange;
    return (result, guard) => {
      const severity = result === "rejected" ? "warn" : "info";
      trace?.point({ type: "policyEvent", kind: guard, details: { result } }, severity);
    };
  }

  ended(
    request: ClientRequest,
    routed: RoutedTarget | undefined,
    { kind, problem }: CallOutcome,
    answer?: string,
  ): void {
    const exchange = this.#exchange;
    const { metrics, logger, names } = this.#env;
    const attributes = exchange.attributes.mcp;
    // The attributes of a batch do not describe its individual messages.
    const own = attributes?.methodName === undefined ? mcpAttributes(request, undefined, names()) : attributes;
    const target = routed?.name ?? own.tool?.target ?? own.target ?? "";
    exchange.records.audit?.ended(request.id, target, kind, answer);
    metrics.result(target, own.tool?.name ?? "", kind);
    if (attributes) {
      if (target !== "") attributes.target ??= target;
      if (attributes.outcome === undefined || attributes.outcome === "ok") attributes.outcome = kind;
    }
    if (problem === undefined) return;
    if (!this.#isOldTransport) this.#call.problem(problem);
    else
      logger.info("MCP request failed", {
        id: exchange.id,
        "mcp.method": request.method,
        "mcp.target": target,
        "mcp.tool": own.tool?.name,
        "mcp.outcome": kind,
        error: problem.code,
        reason: problem.reason.slice(0, 500),
      });
  }
}

export function mcpAttributes(
  message: ClientMessage | undefined,
  sessionId: string | undefined,
  names: Names,
): McpAttributes {
  const attributes: McpAttributes = {};
  if (sessionId !== undefined) attributes.sessionId = sessionId;
  if (message === undefined || message.kind === "response") return attributes;
  attributes.methodName = message.method;
  const only = names.targets.length === 1 ? names.targets[0] : undefined;
  if (only !== undefined) attributes.target = only;
  const about = message.kind === "request" ? addressedItem(message) : undefined;
  if (about === undefined) return attributes;
  const found = names.isPrefixed ? names.inward(about.kind, about.name) : { target: only ?? "", name: about.name };
  if (found === undefined) return attributes;
  const { target, name } = found;
  if (target !== "") attributes.target = target;
  if (about.kind === "tool") attributes.tool = { name, target };
  else if (about.kind === "prompt") attributes.prompt = { name, target };
  else attributes.resource = { uri: name, target };
  return attributes;
}

export function calledTool(message: ClientMessage | undefined, { tool }: McpAttributes): CalledTool | undefined {
  if (tool === undefined || message?.kind !== "request") return undefined;
  return { attributes: tool, args: message.params.arguments };
}
