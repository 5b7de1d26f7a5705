/**
 * Compiles the targets of an MCP backend.
 */

import { createHash } from "node:crypto";
import type { BackendEnv } from "../core/backend.ts";
import { machineOf } from "../core/policy.ts";
import type { SignRequest } from "../core/signed-request.ts";
import { createAwsSigner } from "../identity/cloud/aws.ts";
import { awsKeys } from "../identity/cloud/cloud-credentials.ts";
import { compileExternalGuard, reportGuardFailures } from "../llm/guard-config.ts";
import { GuardRejection, guardParts } from "../llm/guards/guarded-text.ts";
import { compileTextGuard } from "../llm/guards/text-guard.ts";
import type { TextGuard } from "../llm/request/llm-call.ts";
import { confinedFetch } from "./logins/oauth-client.ts";
import { LoginRegistry, ServerLogin } from "./logins/server-login.ts";
import { Vault } from "./logins/vault.ts";
import { serverUrl } from "./openapi/api.ts";
import { type OpenApiConfig, openApiSource } from "./openapi/openapi-config.ts";
import type { McpConfig, ResultGuardConfig } from "./server-side/target-config.ts";
import { MAX_LOCK_BYTES, parseToolLocks, type ToolLock } from "./tools/tool-lock.ts";
import {
  compileToolSettings,
  type ExternalGuards,
  type MessageGuards,
  type ResultGuard,
  type ResultWatch,
  type ToolSettings,
  type ToolSettingsByTarget,
  type WatchFinding,
} from "./tools/tool-settings.ts";

const DEFAULT_REFUSAL = "The result was rejected due to inappropriate content";
const ARGUMENTS_REFUSAL = "The arguments were rejected due to inappropriate content";

export function compileToolSettingsByTarget(config: McpConfig, env: BackendEnv): ToolSettingsByTarget {
  const { toolsLock } = config;
  const locks = toolsLock === undefined ? undefined : readLocks(toolsLock, env);
  const toolSettings = new Map<string, ToolSettings>();
  for (const { name, tools } of config.targets)
    if (tools !== undefined || locks !== undefined)
      toolSettings.set(
        name,
        compileToolSettings({
          tools,
          lock: locks?.(name),
          resultGuards: compileGuards(tools?.resultGuard, env),
          argumentGuards: tools?.argumentGuard && compileGuards(tools.argumentGuard, env, ARGUMENTS_REFUSAL),
          key: "",
          cel: (source) => env.cel(source),
        }),
      );
  return toolSettings;
}

/** `refusal` is the text for rejected messages if a guard has no text of its own. */
function compileGuards(
  configs: readonly ResultGuardConfig[] = [],
  env: BackendEnv,
  refusal = DEFAULT_REFUSAL,
): MessageGuards {
  const enforced = configs.filter(({ mode }) => mode !== "shadow");
  return {
    guard: compileResultGuard(enforced, refusal),
    external: compileExternalGuards(enforced, env, refusal),
    watch: compileResultWatch(configs.filter(({ mode }) => mode === "shadow")),
  };
}

export function compileResultGuard(
  configs: readonly ResultGuardConfig[],
  refusal = DEFAULT_REFUSAL,
): ResultGuard | undefined {
  const guards = compiledGuards(configs, refusal);
  if (guards.length === 0) return undefined;
  return {
    refusal: guards[0]?.action === "reject" ? guards[0].rejection.message : refusal,
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

export function compileResultWatch(configs: readonly ResultGuardConfig[]): ResultWatch | undefined {
  const guards = compiledGuards(configs);
  if (guards.length === 0) return undefined;
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

function compiledGuards(configs: readonly ResultGuardConfig[], refusal = DEFAULT_REFUSAL): readonly TextGuard[] {
  const guards = configs.flatMap(({ regex, rejection }) =>
    regex === undefined ? [] : compileTextGuard(regex.action, regex.rules, rejectionOf(rejection, refusal)),
  );
  return [...guards.filter(({ action }) => action === "reject"), ...guards.filter(({ action }) => action === "mask")];
}

function compileExternalGuards(
  configs: readonly ResultGuardConfig[],
  env: BackendEnv,
  refusal: string,
): ExternalGuards | undefined {
  const failures = env.metrics.counter(
    "gateway_mcp_guard_failures_total",
    "Calls of guards for MCP tools without a verdict.",
    ["url"],
  );
  const failed = reportGuardFailures("mcp", failures, env);
  const guards = configs.flatMap(
    ({ rejection, mode: _mode, regex: _regex, ...external }) =>
      compileExternalGuard(external, rejectionOf(rejection, refusal), env, failed) ?? [],
  );
  return guards.length === 0 ? undefined : { guards, refusal };
}

/** A tool result and a JSON-RPC error have no status of their own, so the status is not used. */
function rejectionOf(rejection: ResultGuardConfig["rejection"], refusal: string): { status: number; message: string } {
  return { status: 403, message: rejection?.body ?? refusal };
}

function readLocks(path: string, env: BackendEnv): (target: string) => ToolLock {
  const text = lockText(path, env);
  try {
    return parseToolLocks(text);
  } catch (error) {
    throw new Error(`toolsLock: ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/**
 * Suggests how to create a missing lock file. `gwctl mcp lock` needs a running gateway, which does not start while
 * `toolsLock` refers to a missing file.
 */
function lockText(path: string, env: BackendEnv): string {
  try {
    return env.readFile(path, MAX_LOCK_BYTES);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const isMissing = reason.includes("ENOENT");
    throw new Error(isMissing ? `${reason}; write it with \`gwctl mcp lock\` while toolsLock is not set` : reason);
  }
}

const MAX_DESCRIPTION_FILE_BYTES = 16 * 1024 * 1024;

export function withResolvedPath(target: McpConfig["targets"][number], env: BackendEnv): McpConfig["targets"][number] {
  const { stdio, openapi } = target;
  if (openapi) return { ...target, openapi: withDescription(openapi, env) };
  if (stdio === undefined) return target;
  const machine = machineOf(env, "start a process");
  if (stdio.cwd !== undefined) return { ...target, stdio: { ...stdio, cwd: machine.resolvePath(stdio.cwd) } };
  // Without `cwd`, `./server.sh` is relative to the configuration file. A plain name is looked up in PATH.
  return /^\.{1,2}[/\\]/.test(stdio.cmd)
    ? { ...target, stdio: { ...stdio, cmd: machine.resolvePath(stdio.cmd) } }
    : target;
}

function withDescription(config: OpenApiConfig, env: BackendEnv): OpenApiConfig {
  if (config.file === undefined) return config;
  const text = env.readFile(config.file, MAX_DESCRIPTION_FILE_BYTES);
  try {
    const described = { ...config, source: openApiSource(text) };
    serverUrl(described);
    return described;
  } catch (error) {
    throw new Error(`openapi: ${config.file}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

const MIN_KEY_CHARS = 32;

export function serverLogins(config: McpConfig, env: BackendEnv): ReadonlyMap<string, ServerLogin> {
  const logins = new Map<string, ServerLogin>();
  const targets = config.targets.filter(({ mcp }) => mcp?.oauth !== undefined);
  if (targets.length === 0) return logins;
  if (!env.requiresCredential)
    throw new Error(
      "`oauth` stores tokens per user: the route needs an authentication policy that rejects anonymous clients",
    );
  const key = vaultKey(config, env);
  const registry = env.acquireShared("mcp logins", () => new LoginRegistry());
  for (const { name, mcp } of targets) {
    if (mcp?.oauth === undefined) continue;
    const { url, oauth } = mcp;
    const id = `${env.name}/${name}`;
    const definition = createHash("sha256")
      .update(JSON.stringify([url, oauth, key]))
      .digest("hex");
    const kept = env.acquire(
      `mcp login ${id}`,
      definition,
      () => {
        const vault = new Vault(env.store.at("mcp-vault"), key);
        const logger = env.logger.for("mcp");
        const fetch = confinedFetch(url, env.fetch, oauth.issuer);
        const parts = { clock: env.clock, fetch, logger, vault };
        return { login: new ServerLogin(id, name, url, oauth, parts), vault };
      },
      ({ login }) => registry.remove(login),
    );
    env.serving(() => registry.add(kept.login, kept.vault));
    logins.set(name, kept.login);
  }
  return logins;
}

export function requestSigners(config: McpConfig, env: BackendEnv): ReadonlyMap<string, SignRequest> {
  const signers = new Map<string, SignRequest>();
  for (const { name, mcp, sse, openapi } of config.targets) {
    const aws = (mcp ?? sse)?.aws ?? openapi?.auth?.aws;
    if (aws === undefined) continue;
    const keys = awsKeys(aws, { name: `${env.name}/${name}`, area: "mcp" }, aws.region, env);
    signers.set(name, createAwsSigner(keys, aws, env.clock));
  }
  return signers;
}

function vaultKey({ vaultKey: given, vaultKeyFile }: McpConfig, env: BackendEnv): string {
  const key = given ?? (vaultKeyFile === undefined ? undefined : env.readFile(vaultKeyFile).trim());
  if (key === undefined) throw new Error("`oauth` needs a key for the users' tokens: set `vaultKey` or `vaultKeyFile`");
  if (key.length < MIN_KEY_CHARS)
    throw new Error(`the key in \`vaultKeyFile\` has fewer than ${MIN_KEY_CHARS} characters`);
  return key;
}
