/**
 * Holds the services and the current configuration of one MCP backend.
 */

import type { Clock } from "../base/clock.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Tasks } from "../base/tasks.ts";
import type { Machine } from "../core/policy.ts";
import type { SignRequest } from "../core/signed-request.ts";
import type { EgressGuard } from "../http/egress-guard.ts";
import type { Fetch } from "../http/fetch.ts";
import type { TlsOptions } from "../http/http-client.ts";
import type { Logger } from "../record/log/logger.ts";
import type { OwnedStore } from "../store/owned-store.ts";
import type { SigningKey } from "../store/signing-key.ts";
import { createNames, type Names } from "./aggregation/names.ts";
import type { ServerLogin } from "./logins/server-login.ts";
import type { Target } from "./server-side/target.ts";
import type { McpConfig } from "./server-side/target-config.ts";
import { TargetTools, type ToolSettingsByTarget } from "./tools/tool-settings.ts";

export interface BackendServices {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly memory: MemoryBudget;
  readonly tls: TlsOptions | undefined;
  readonly egress: EgressGuard;
  readonly machine: Machine | undefined;
  readonly store: OwnedStore;
  readonly signingKey: SigningKey;
  readonly fetch: Fetch;
}

export interface CompiledTargets {
  readonly toolSettings: ToolSettingsByTarget;
  readonly logins: ReadonlyMap<string, ServerLogin>;
  readonly signers: ReadonlyMap<string, SignRequest>;
  /** True if clients log in at the only server themselves, so the gateway relays the server's login challenges. */
  readonly relaysLogin: boolean;
}

export class BackendState {
  readonly services: BackendServices;
  readonly tools: TargetTools;
  config: McpConfig;
  logins: CompiledTargets["logins"];
  signers: CompiledTargets["signers"];
  relaysLogin: boolean;
  names: Names;
  targets: readonly Target[] = [];

  constructor(config: McpConfig, compiled: CompiledTargets, services: BackendServices) {
    this.services = services;
    this.config = config;
    this.tools = new TargetTools(compiled.toolSettings, services.logger);
    this.logins = compiled.logins;
    this.signers = compiled.signers;
    this.relaysLogin = compiled.relaysLogin;
    this.names = namesFor(config);
  }

  get wantsHeaders(): boolean {
    return this.targets.some(({ config }) => config.stdio === undefined);
  }
}

export function namesFor({ targets, prefixMode }: McpConfig): Names {
  return createNames(
    targets.map(({ name }) => name),
    prefixMode,
  );
}
