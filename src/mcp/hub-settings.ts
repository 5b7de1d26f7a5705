/**
 * The parts of an MCP backend's configuration that its hub hands to others, what it needs from outside, and what
 * it tells of its targets.
 */

import type { Clock } from "../base/clock.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Tasks } from "../base/tasks.ts";
import type { Fetch } from "../http/fetch.ts";
import type { TlsOptions } from "../http/http-client.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { SigningKey } from "../store/signing-key.ts";
import type { Store } from "../store/store.ts";
import type { ServerLogin } from "./logins/server-login.ts";
import { defaultConcurrentStarts, type Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import type { ToolProducts } from "./tools/tool-settings.ts";
import type { Environment } from "./transports/stdio-transport.ts";

/** What is compiled of the configuration, by the names of targets. */
export interface HubParts {
  readonly products: ToolProducts;
  readonly logins: ReadonlyMap<string, ServerLogin>;
  /** The only server's wish for a login reaches its clients, who log in themselves. */
  readonly relaysLogin: boolean;
}

export interface HubEnv {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly memory: MemoryBudget;
  readonly tls: TlsOptions | undefined;
  /** A document of a cluster names the servers. */
  readonly isConfined?: boolean | undefined;
  readonly environment: Environment;
  readonly store: Store;
  readonly signingKey: SigningKey;
  readonly fetch: Fetch;
}

/** Headers of clients that any target is told. */
export function forwardedBy({ targets }: McpConfig): readonly string[] {
  return targets.flatMap(({ mcp, sse, openapi }) => (mcp ?? sse ?? openapi)?.forwardHeaders ?? []);
}

export function gateLimits(config: McpConfig) {
  const own = config.targets.filter(({ stdio, shared }) => stdio !== undefined && !shared).length;
  return {
    maxChildren: config.maxChildren,
    maxChildrenPerClient: config.maxChildrenPerClient ?? Math.max(own, Math.ceil(config.maxChildren / 2)),
    maxConcurrentStarts: config.maxConcurrentStarts ?? defaultConcurrentStarts(),
  };
}

export function storeSettings(config: McpConfig) {
  const { maxSessions, sessionIdleTtl, parkAfter } = config;
  const maxSessionsPerClient = config.maxSessionsPerClient ?? Math.ceil(maxSessions / 2);
  return { maxSessions, maxSessionsPerClient, sessionIdleTtlMs: sessionIdleTtl, parkAfterMs: parkAfter };
}

/** A session that never came about has no task of its own: what its servers said is told by the backend's. */
export function failuresOf(targets: readonly Target[]): Record<string, unknown> {
  const failures = targets.flatMap(({ name, failures: of }) => {
    const last = of.last();
    return last ? [{ target: name, ...last }] : [];
  });
  return failures.length === 0 ? {} : { failures };
}
