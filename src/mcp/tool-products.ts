/**
 * What the configuration makes of the tools of an MCP backend's targets, compiled: changes to single tools, and the lock
 * file that all of them are compared with.
 */
import type { BackendEnv } from "../core/backend.ts";
import { GuardRejection, guardParts } from "../llm/guards/guarded-text.ts";
import { compileTextGuard } from "../llm/guards/text-guard.ts";
import type { TextGuard } from "../llm/request/llm-call.ts";
import { unwrappedCall, unwrappedMessage } from "./aggregation/tool-search.ts";
import type { Demand } from "./client-side/downstream.ts";
import type { McpConfig, ResultGuardConfig } from "./server-side/target-config.ts";
import { MAX_LOCK_BYTES, parseToolLocks, type ToolLock } from "./tools/tool-lock.ts";
import {
  compileToolProduct,
  type ResultGuard,
  type ResultWatch,
  type ToolProduct,
  type ToolProducts,
  type WatchFinding,
} from "./tools/tool-settings.ts";

const DEFAULT_REFUSAL = "The result was rejected due to inappropriate content";

/** Throws an Error that says what is wrong with the lock file. */
export function toolProducts(config: McpConfig, env: BackendEnv): ToolProducts {
  const { toolsLock } = config;
  const locks = toolsLock === undefined ? undefined : readLocks(toolsLock, env);
  const products = new Map<string, ToolProduct>();
  for (const { name, tools } of config.targets)
    if (tools !== undefined || locks !== undefined)
      products.set(
        name,
        compileToolProduct({
          tools,
          lock: locks?.(name),
          guard: resultGuardOf(tools?.resultGuard?.filter(({ mode }) => mode !== "shadow")),
          watch: resultWatchOf(tools?.resultGuard?.filter(({ mode }) => mode === "shadow")),
          key: "",
          cel: (source) => env.cel(source),
        }),
      );
  return products;
}

/** The same guards as for texts of LLM responses. Those that reject come first. */
export function resultGuardOf(configs: readonly ResultGuardConfig[] = []): ResultGuard | undefined {
  if (configs.length === 0) return undefined;
  const guards = compiledGuards(configs);
  return {
    refusal: guards[0]?.action === "reject" ? guards[0].rejection.message : DEFAULT_REFUSAL,
    *checked(parts) {
      try {
        return yield* guardParts(parts, guards);
      } catch (error) {
        if (error instanceof GuardRejection) return undefined;
        throw error;
      }
    },
  };
}

export function resultWatchOf(configs: readonly ResultGuardConfig[] = []): ResultWatch | undefined {
  if (configs.length === 0) return undefined;
  const guards = compiledGuards(configs);
  return {
    unread: guards.map(({ name }) => ({ rule: name, action: "reject" })),
    *found(parts) {
      const found: WatchFinding[] = [];
      yield* guardParts(parts, guards, ({ name, action }) => void found.push({ rule: name, action }));
      const rejected = found.filter(({ action }) => action === "reject");
      return rejected.length > 0 ? rejected : found;
    },
  };
}

function compiledGuards(configs: readonly ResultGuardConfig[]): readonly TextGuard[] {
  const guards = configs.map(({ regex, rejection }) => {
    const message = rejection?.body ?? DEFAULT_REFUSAL;
    return compileTextGuard(regex.action, regex.rules, { status: 403, message });
  });
  return [...guards.filter(({ action }) => action === "reject"), ...guards.filter(({ action }) => action === "mask")];
}

function readLocks(path: string, env: BackendEnv): (target: string) => ToolLock {
  const text = lockText(path, env);
  try {
    return parseToolLocks(text);
  } catch (error) {
    throw new Error(`toolsLock: ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The file comes from a gateway that runs: the first time, from one without it. */
function lockText(path: string, env: BackendEnv): string {
  try {
    return env.readFile(path, MAX_LOCK_BYTES);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const isMissing = reason.includes("ENOENT");
    throw new Error(isMissing ? `${reason}; write it with \`gwctl mcp lock\` while toolsLock is not set` : reason);
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
