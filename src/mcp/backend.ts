/**
 * Defines the `mcp` backend. Its code is loaded for the first configuration that has one.
 */
import { createRequire } from "node:module";
import { onDemand } from "../base/on-demand.ts";
import { defineBackend } from "../core/backend.ts";
import { mcpSchema } from "./server-side/target-config.ts";

const MCP_PATHS = [{ exact: "/mcp" }, { exact: "/mcp/" }, { exact: "/sse" }];

const require = createRequire(import.meta.url);
const implementation = onDemand<typeof import("./mcp-backend.ts")>(() => require("./mcp-backend.js"));
const loginRelay = onDemand<typeof import("./login-relay.ts")>(() => require("./login-relay.js"));

export const mcp = defineBackend({
  key: "mcp",
  doc: "MCP servers over stdio, streamable HTTP, or HTTP+SSE. Clients see several servers as one.",
  schema: mcpSchema,
  defaultPaths: MCP_PATHS,
  section: { name: "mcp", defaultPort: 3000, paths: MCP_PATHS },
  protection: ({ targets, toolsLock }) =>
    toolsLock !== undefined || targets.some(({ tools }) => tools !== undefined) ? "route" : "none",
  extraMatches: (config, paths) => loginRelay().relayPaths(config, paths),
  sharedState({ targets, statefulMode }) {
    const hasLogins =
      Array.isArray(targets) &&
      targets.some(
        (target: { readonly mcp?: { readonly oauth?: unknown } } | null) => target?.mcp?.oauth !== undefined,
      );
    if (hasLogins) return { what: "connected accounts" };
    return statefulMode === "stateless" ? undefined : { what: "MCP sessions", isSigned: true };
  },
  compile: (config, env) => implementation().compileMcp(config, env),
});
