/**
 * Compiles a target: a provider at an address, with a credential and optionally a fixed model.
 */

import type { Clock } from "../../base/clock.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { machineOf } from "../../core/policy.ts";
import type { SignedRequest } from "../../core/signed-request.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import type { HttpTarget } from "../../http/http-client.ts";
import { createAwsSigner } from "../../identity/cloud/aws.ts";
import { type AuthConfig, addKey, BEDROCK, type Credential, compileCredential } from "../credentials/credential.ts";
import { anthropic } from "../providers/anthropic.ts";
import { azure } from "../providers/azure.ts";
import { bedrock } from "../providers/bedrock.ts";
import { customProvider } from "../providers/custom.ts";
import { createDemoUpstream, demoProvider, type Upstream } from "../providers/demo.ts";
import { gemini } from "../providers/gemini.ts";
import { chatVariantFor, openAi, openAiCompatible } from "../providers/openai.ts";
import { vertex } from "../providers/vertex.ts";
import type { Provider } from "../request/provider.ts";
import type { Feature } from "../request/rejected-features.ts";
import { type Cooldown, Health } from "./health.ts";
import { type PerMinute, Quota } from "./quota.ts";
import type { ProviderConfig } from "./schema.ts";

export interface Target {
  readonly name: string;
  readonly provider: Provider;
  readonly model: string | undefined;
  readonly upstream: Upstream;
  readonly authority: string;
  readonly address: HttpTarget;
  readonly display: string;
  readonly basePath: string;
  readonly pathOverride: string | undefined;
  readonly credential: Credential;
  /** Adds an access token or an AWS signature. Undefined for a plain key and for the client's key. */
  readonly sign: RequestSigner | undefined;
  readonly health: Health;
  readonly quota: Quota | undefined;
  readonly timeouts: TargetTimeouts | undefined;
  readonly memory: TargetMemory;
}

/** Stores properties of the server that earlier responses revealed. */
export interface TargetMemory {
  readonly rejectedFeatures: Set<Feature>;
}

export interface TargetTimeouts {
  readonly firstByteMs: number | undefined;
  readonly idleMs: number | undefined;
}

/** Returns undefined if it completed synchronously. Rejects with `CredentialError` if no credential is available. */
export type RequestSigner = (request: SignedRequest) => Promise<void> | undefined;

export interface TargetOptions {
  readonly name: string;
  readonly provider: ProviderConfig;
  readonly auth: AuthConfig | undefined;
  readonly hostOverride: string | undefined;
  readonly pathOverride: string | undefined;
  readonly pathPrefix: string | undefined;
  readonly timeouts: { readonly firstByte?: number | undefined; readonly idle?: number | undefined } | undefined;
  readonly cooldown: Cooldown;
  readonly perMinute?: PerMinute | undefined;
  readonly model?: string | undefined;
}

export function openTarget(options: TargetOptions, env: BackendEnv): Target {
  const { provider: config } = options;
  const provider = createProvider(config);
  const isDemo = config.demo !== undefined;
  const address = resolveAddress(provider, options.hostOverride, env);
  const upstream = isDemo
    ? createDemoUpstream(env.clock, config.demo?.delay ?? 0)
    : env.acquire(
        `ai-pool ${options.name} ${address.protocol}://${address.host}:${address.port}`,
        address,
        () => openHttpPool(address),
        (pool) => pool.close(),
      );
  const region = config.bedrock?.region ?? "us-east-1";
  const credential = compileCredential(options.auth, options.name, region, env);
  if (credential.kind === "aws" && provider.credential !== "aws") throw new Error("`auth.aws` is only for bedrock");
  if (options.auth?.google && !(config.vertex || config.gemini || config.openAICompatible || config.custom))
    throw new Error("`auth.google` is only for vertex, gemini, custom and compatible servers");
  if (options.auth?.azure && !(config.azure || config.openAICompatible || config.anthropic || config.custom))
    throw new Error("`auth.azure` is only for azure, anthropic, custom and compatible servers");
  const model = options.model ?? Object.values(config).find((settings) => settings !== undefined)?.model;
  const defaultPort = address.protocol === "https" ? 443 : 80;
  const bracketed = address.host.includes(":") ? `[${address.host}]` : address.host;
  return {
    name: options.name,
    provider,
    model,
    upstream,
    authority: address.port === defaultPort ? bracketed : `${bracketed}:${address.port}`,
    address,
    display: isDemo ? "internal:demo" : `${bracketed}:${address.port}`,
    basePath: options.pathPrefix ?? provider.basePath,
    pathOverride: options.pathOverride,
    credential,
    sign: signerFor(credential, region, env.clock),
    health: new Health(env.clock, options.cooldown),
    quota: options.perMinute && acquireQuota(options.name, options.perMinute, env),
    timeouts: options.timeouts && { firstByteMs: options.timeouts.firstByte, idleMs: options.timeouts.idle },
    memory: { rejectedFeatures: new Set() },
  };
}

/** The quota is a long-lived resource, so a reload with the same limits does not reset its counts. */
function acquireQuota(name: string, perMinute: PerMinute, env: BackendEnv): Quota {
  return env.acquire(`ai-quota ${env.name} ${name}`, perMinute, () => new Quota(env.clock, perMinute));
}

function signerFor(credential: Credential, region: string, clock: Clock): RequestSigner | undefined {
  if (credential.kind === "aws") return createAwsSigner(credential.keys, { region, service: BEDROCK }, clock);
  if (credential.kind !== "token") return undefined;
  return ({ headers }) => {
    const token = credential.token.get();
    // Access tokens are bearer tokens even if the provider's API keys use another header.
    if (typeof token !== "string") return token.then((fresh) => addKey(headers, "bearer", fresh));
    addKey(headers, "bearer", token);
    return undefined;
  };
}

function createProvider(config: ProviderConfig): Provider {
  if (config.openAI) return openAi();
  if (config.anthropic) return anthropic();
  if (config.gemini) return gemini();
  if (config.vertex) return vertex(config.vertex);
  if (config.bedrock) return bedrock(config.bedrock.region);
  if (config.azure) return azure({ ...config.azure, apiVersion: config.azure.apiVersion });
  if (config.custom) return customProvider(config.custom);
  if (config.openAICompatible) {
    const { baseUrl, name, streamUsage, responses } = config.openAICompatible;
    const known = name ?? new URL(baseUrl).hostname;
    return openAiCompatible(known, baseUrl, { streamUsage, responses, chat: chatVariantFor(known) });
  }
  return demoProvider();
}

function resolveAddress(provider: Provider, hostOverride: string | undefined, env: BackendEnv): HttpTarget {
  const parsed = parseAddress(hostOverride ?? provider.origin);
  if (!parsed.ok) throw new Error(parsed.error);
  if (parsed.target.socketPath !== undefined) machineOf(env, "use a unix socket");
  const target = { ...parsed.target, egress: env.egress };
  return env.tls ? { ...target, protocol: "https", tls: env.tls } : target;
}
