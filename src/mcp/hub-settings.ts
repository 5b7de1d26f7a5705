/**
 * The parts of an MCP backend's configuration that its hub hands to others, and what it tells of its targets.
 */
import { defaultConcurrentStarts, type Target } from "./servers/target.ts";
import type { McpConfig } from "./servers/target-config.ts";

/** Headers of clients that any target is told. */
export function forwardedBy({ targets }: McpConfig): readonly string[] {
  return targets.flatMap(({ mcp, sse, openapi }) => (mcp ?? sse ?? openapi)?.forwardHeaders ?? []);
}

export function gateLimits(config: McpConfig) {
  return {
    maxChildren: config.maxChildren,
    maxConcurrentStarts: config.maxConcurrentStarts ?? defaultConcurrentStarts(),
  };
}

export function storeSettings(config: McpConfig) {
  const { maxSessions, sessionIdleTtl, parkAfter } = config;
  return { maxSessions, sessionIdleTtlMs: sessionIdleTtl, parkAfterMs: parkAfter };
}

/** A session that never came about has no task of its own: what its servers said is told by the backend's. */
export function failuresOf(targets: readonly Target[]): Record<string, unknown> {
  const failures = targets.flatMap(({ name, failures: of }) => {
    const last = of.last();
    return last ? [{ target: name, ...last }] : [];
  });
  return failures.length === 0 ? {} : { failures };
}
