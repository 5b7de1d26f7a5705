/**
 * Defines the fields of `/config_dump` that the page uses.
 */
import { computed } from "@preact/signals";
import { llmProviderOf } from "../../../src/cli/views/llm-providers.ts";
import { getJson } from "./api.ts";
import { canaryOf } from "./canary.ts";
import { createPoll } from "./poll.ts";

export interface Dump {
  readonly listeners: readonly DumpListener[];
  readonly routes: readonly DumpRoute[];
  readonly backends: readonly DumpBackend[];
  readonly policies: readonly DumpPolicy[];
  readonly config: Record<string, unknown>;
  readonly version: string;
  readonly reload: {
    readonly loadedAt: string;
    readonly generation: number;
    readonly refused?: { readonly at: string; readonly problems: readonly string[] };
    readonly warnings: readonly string[];
    readonly sources: readonly string[];
    readonly needsRestart: readonly string[];
  };
}

export type Policies = Readonly<Record<string, unknown>>;

export interface DumpListener {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly policies: Policies;
  readonly routes: readonly string[];
}

export interface DumpMatch {
  readonly path: { readonly exact?: string; readonly pathPrefix?: string; readonly regex?: string };
  readonly method?: string;
  readonly headers?: readonly { name: string; exact?: string; regex?: string }[];
  readonly query?: readonly { name: string; exact?: string; regex?: string }[];
}

export interface DumpRoute {
  readonly name: string;
  readonly gateways: readonly string[];
  readonly hostnames: readonly string[];
  readonly matches: readonly DumpMatch[];
  readonly policies: Policies;
  readonly backends: readonly { readonly name: string; readonly weight: number }[];
}

export interface DumpBackend {
  readonly name: string;
  readonly type: string;
  readonly protocol: string;
  readonly policies: Policies;
  readonly [field: string]: unknown;
}

/** Represents a standalone policy with its target, or a GatewayPolicy document with its status. */
export interface DumpPolicy {
  readonly kind: string;
  readonly target?: Readonly<Record<string, string>>;
  readonly policy?: unknown;
  readonly metadata?: { readonly name: string; readonly namespace?: string };
  readonly spec?: unknown;
  readonly status?: {
    readonly ancestors?: readonly {
      readonly ancestorRef?: { readonly kind?: string; readonly name?: string };
      readonly conditions?: readonly {
        readonly type: string;
        readonly status: string;
        readonly message?: string;
        readonly reason?: string;
      }[];
    }[];
  };
}

const DUMP_INTERVAL_MS = 10_000;

export const dump = createPoll(() => getJson<Dump>("config_dump"), DUMP_INTERVAL_MS);

export const routeNames = computed(() => dump.value.value?.routes.map(({ name }) => name) ?? []);

export function matchText(match: DumpMatch): string {
  const { exact, pathPrefix, regex } = match.path;
  const path = exact ?? (regex === undefined ? `${(pathPrefix ?? "/").replace(/\/$/, "")}/*` : `~ ${regex}`);
  return match.method === undefined ? path : `${match.method} ${path}`;
}

export function backendText(backend: DumpBackend): string {
  if (typeof backend.host === "string") return backend.host;
  const leaves = leavesOf(backend).filter(({ kind }) => kind !== "canary");
  if (leaves.length > 0) return leaves.map(({ name }) => name).join(", ");
  return backend.type;
}

export interface Leaf {
  readonly name: string;
  readonly kind: "target" | "model" | "canary";
  readonly detail: string;
  readonly state: "ok" | "warn" | "bad" | "idle";
}

/** Returns the MCP servers, LLM providers, and models behind a backend, and its canary state. */
export function leavesOf(backend: DumpBackend): Leaf[] {
  const targets = listOf(backend.targets).map((target) => ({
    name: textOf(target.name),
    kind: "target" as const,
    detail: [targetText(target), textOf(target.lastError)].filter(Boolean).join(" · "),
    state: stateOf(target, backend.type === "mcp"),
  }));
  const models = (Array.isArray(backend.models) ? backend.models : []).map((model: unknown) => ({
    name: textOf(typeof model === "object" && model !== null && "name" in model ? model.name : model),
    kind: "model" as const,
    detail: "model",
    state: "idle" as const,
  }));
  const trial = canaryOf(backend);
  const canary = trial && {
    name: "canary",
    kind: "canary" as const,
    detail: trial.text,
    state: trial.isWithdrawn ? ("warn" as const) : ("ok" as const),
  };
  return [...targets, ...models, ...(canary ? [canary] : [])].filter(({ name }) => name !== "");
}

export function targetText(target: Record<string, unknown>): string {
  const stdio = target.stdio as { cmd?: unknown; args?: unknown } | undefined;
  if (stdio) return [stdio.cmd, ...(Array.isArray(stdio.args) ? stdio.args : [])].map(textOf).join(" ");
  const remote = (target.mcp ?? target.sse) as { url?: unknown } | undefined;
  return textOf(remote?.url ?? target.target ?? target.provider);
}

export function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "object" && item !== null) : [];
}

export function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** LLM targets report failures and ejections. The state of MCP servers is in `/debug/tasks` instead. */
function stateOf(target: Record<string, unknown>, isMcp: boolean): Leaf["state"] {
  if (isMcp) return "idle";
  return llmProviderOf(target).state === "ok" ? "ok" : "bad";
}
