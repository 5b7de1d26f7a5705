/**
 * What the configuration makes of the tools of an MCP backend's targets, compiled: changes to single tools, and the lock
 * file that all of them are compared with.
 */
import type { BackendEnv } from "../../core/backend.ts";
import type { Demand } from "../../mcp/clients/downstream.ts";
import { unwrappedCall, unwrappedMessage } from "../../mcp/many/search-tools.ts";
import type { McpConfig } from "../../mcp/servers/target-config.ts";
import { parseToolLocks, type ToolLock } from "../../mcp/tools/tool-lock.ts";
import { compileToolProduct, type ToolProduct } from "../../mcp/tools/tool-product.ts";
import type { ToolProducts } from "../../mcp/tools/tools-of-targets.ts";

/** Throws an Error that says what is wrong with the lock file. */
export function toolProducts(config: McpConfig, env: BackendEnv): ToolProducts {
  const { toolsLock } = config;
  const locks = toolsLock === undefined ? undefined : readLocks(toolsLock, env);
  const products = new Map<string, ToolProduct>();
  for (const { name, tools } of config.targets)
    if (tools !== undefined || locks !== undefined)
      products.set(
        name,
        compileToolProduct({ tools, lock: locks?.(name), guard: undefined, key: "", cel: (source) => env.cel(source) }),
      );
  return products;
}

function readLocks(path: string, env: BackendEnv): (target: string) => ToolLock {
  const text = env.readFile(path);
  try {
    return parseToolLocks(text);
  } catch (error) {
    throw new Error(`toolsLock: ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** What a request wants, with each call through `call_tool` as the call that it means (`toolMode: search`). */
export function unwrappedDemand(demand: Demand): Demand {
  switch (demand.kind) {
    case "requests":
      return { ...demand, requests: demand.requests.map(unwrappedCall) };
    case "streamMessage":
      return { ...demand, message: unwrappedMessage(demand.message) };
    case "modern":
      return { ...demand, request: unwrappedCall(demand.request) };
    default:
      return demand;
  }
}
