/**
 * Defines the MCP metrics for requests, sessions, and child processes. All backends register in the same metric
 * families.
 */
import type { McpOutcome } from "../../core/request-attributes.ts";
import type { Counter, Metrics } from "../../record/log/metrics.ts";

/** Lists the methods with a separate series. All other methods share one series, because clients choose the names. */
const METHODS = [
  ...["initialize", "server/discover", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get"],
  ...["resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"],
  ...["completion/complete", "logging/setLevel", "subscriptions/listen"],
];

export interface Counted {
  readonly name: string;
  readonly sessions: { readonly size: number };
  readonly children: number;
}

export type CountedBackends = Set<Counted>;

export interface McpMetrics {
  request(method: string): void;
  /**
   * Counts a completed request. `tool` is empty unless the method is `tools/call`, and `target` is empty if no single
   * target is known.
   */
  result(target: string, tool: string, outcome: McpOutcome): void;
}

export function createMcpMetrics(metrics: Metrics, backend: string, all: CountedBackends): McpMetrics {
  const read = (value: (one: Counted) => number) => () =>
    [...all].map((one) => [{ backend: one.name }, value(one)] as const);
  metrics.gauge(
    "gateway_mcp_sessions",
    "MCP sessions and groups that are open.",
    read(({ sessions }) => sessions.size),
  );
  metrics.gauge(
    "gateway_mcp_children",
    "Child processes of MCP targets.",
    read(({ children }) => children),
  );
  const family = metrics.counter("gateway_mcp_requests_total", "MCP requests, by method.", ["backend", "method"]);
  const series = new Map<string, Counter>(METHODS.map((method) => [method, family.labels(backend, method)]));
  const other = family.labels(backend, "other");
  const results = metrics.counter(
    "gateway_mcp_results_total",
    "MCP requests that ended, by target, tool and outcome. `tool` is empty for other requests than tool calls.",
    ["backend", "target", "tool", "outcome"],
  );
  const tools = new Map<string, KnownTools>();
  const counters = new Map<string, Counter>();
  const toolLabel = (target: string, tool: string, outcome: McpOutcome): string => {
    let known = tools.get(target);
    if (known === undefined) {
      known = new KnownTools();
      tools.set(target, known);
    }
    return known.label(tool, outcome === "ok");
  };
  return {
    request: (method) => (series.get(method) ?? other).add(),
    result(target, tool, outcome) {
      const label = tool === "" ? "" : toolLabel(target, tool, outcome);
      const key = `${target}\n${label}\n${outcome}`;
      let counter = counters.get(key);
      if (counter === undefined) {
        counter = results.labels(backend, target, label, outcome);
        counters.set(key, counter);
      }
      counter.add();
    },
  };
}

const MAX_TOOLS = 100;
const MAX_UNPROVEN_TOOLS = 50;
const MAX_TOOL_LABEL_CHARS = 128;

export const OTHER_TOOLS = "other";

/**
 * Tracks the tools of one target that have a separate metric series. Clients choose the names, so their number is
 * limited. Names without a successful call take at most half of the slots, so that invented names cannot displace real
 * tools.
 */
export class KnownTools {
  readonly #tools = new Map<string, boolean>();
  #unproven = 0;

  label(tool: string, succeeded: boolean): string {
    const isProven = this.#tools.get(tool);
    if (isProven === true || (isProven === false && !succeeded)) return tool;
    if (isProven === undefined && !this.#hasSlot(tool, succeeded)) return OTHER_TOOLS;
    if (isProven === false) this.#unproven -= 1;
    if (!succeeded) this.#unproven += 1;
    this.#tools.set(tool, succeeded);
    return tool;
  }

  #hasSlot(tool: string, succeeded: boolean): boolean {
    if (tool.length > MAX_TOOL_LABEL_CHARS || this.#tools.size >= MAX_TOOLS) return false;
    return succeeded || this.#unproven < MAX_UNPROVEN_TOOLS;
  }
}
