/**
 * Compiles a target: a provider at an address, with a credential and optionally a fixed model. A target that fails
 * is ejected, which means that it is tried last. `ai.failoverOn` decides which response statuses move on to the next
 * target.
 */
import type { Clock } from "../../base/clock.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { machineOf } from "../../core/policy.ts";
import type { SignedRequest } from "../../core/signed-request.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import type { HttpTarget } from "../../http/http-client.ts";
import { createAwsSigner } from "../../identity/cloud/aws.ts";
import { type AuthConfig, addKey, BEDROCK, type Credential, compileCredential } from "./credential.ts";
import { createDemoUpstream, demoProvider, type Upstream } from "./demo.ts";
import {
  anthropic,
  azure,
  bedrock,
  chatVariantFor,
  customProvider,
  type Feature,
  gemini,
  openAi,
  openAiCompatible,
  type Provider,
  vertex,
} from "./providers.ts";
import type { FailoverCause, ProviderConfig } from "./schema.ts";

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
interface TargetMemory {
  readonly rejectedFeatures: Set<Feature>;
}

export interface TargetTimeouts {
  readonly firstByteMs: number | undefined;
  readonly idleMs: number | undefined;
}

/** Returns undefined if it completed synchronously. Rejects with `CredentialError` if no credential is available. */
type RequestSigner = (request: SignedRequest) => Promise<void> | undefined;

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

export interface Cooldown {
  readonly allowedFailures: number;
  readonly initialMs: number;
  readonly maxMs: number;
  readonly maxRetryAfterMs: number;
}

const MAX_DOUBLINGS = 16;
const RECENT_MINUTES = 60;
const MINUTE_MS = 60_000;

interface Minute {
  minute: number;
  calls: number;
  failed: number;
}

export class Health {
  readonly #clock: Clock;
  readonly #cooldown: Cooldown;
  readonly #recent: Minute[] = Array.from({ length: RECENT_MINUTES }, () => ({ minute: -1, calls: 0, failed: 0 }));
  #failures = 0;
  #lastFailureMs: number | undefined = undefined;
  #ejectedUntilMs = 0;

  constructor(clock: Clock, cooldown: Cooldown) {
    this.#clock = clock;
    this.#cooldown = cooldown;
  }

  get isEjected(): boolean {
    return this.#failures > 0 && this.#clock.monotonicMs() < this.#ejectedUntilMs;
  }

  recordFailure(retryAfterSeconds: number | undefined): void {
    const { allowedFailures, initialMs, maxMs, maxRetryAfterMs } = this.#cooldown;
    const counted = this.#failures - allowedFailures;
    this.#failures += 1;
    const now = this.#clock.monotonicMs();
    this.#countCall(now).failed += 1;
    this.#lastFailureMs = now;
    if (retryAfterSeconds !== undefined)
      this.#ejectedUntilMs = now + Math.min(Math.max(0, retryAfterSeconds * 1000), maxRetryAfterMs);
    else if (counted >= 0)
      this.#ejectedUntilMs = now + Math.min(initialMs * 2 ** Math.min(counted, MAX_DOUBLINGS), maxMs);
  }

  recordSuccess(): void {
    this.#failures = 0;
    this.#countCall(this.#clock.monotonicMs());
  }

  /** `recent` counts the calls of the last hour, with the current minute. */
  describe(): Record<string, unknown> {
    const nowMs = this.#clock.monotonicMs();
    const minute = Math.floor(nowMs / MINUTE_MS);
    const recent = { calls: 0, failed: 0 };
    for (const one of this.#recent) {
      if (one.minute <= minute - RECENT_MINUTES) continue;
      recent.calls += one.calls;
      recent.failed += one.failed;
    }
    const agoMs = this.#lastFailureMs === undefined ? undefined : Math.round(nowMs - this.#lastFailureMs);
    return {
      failures: this.#failures,
      resting: this.isEjected,
      recent,
      ...(agoMs === undefined ? {} : { lastFailureAgoMs: agoMs }),
    };
  }

  #countCall(nowMs: number): Minute {
    const minute = Math.floor(nowMs / MINUTE_MS);
    const current = this.#recent[minute % RECENT_MINUTES] as Minute;
    if (current.minute !== minute) Object.assign(current, { minute, calls: 0, failed: 0 });
    current.calls += 1;
    return current;
  }
}

const WINDOW_MS = 60_000;

interface PerMinute {
  readonly requests?: number | undefined;
  readonly tokens?: number | undefined;
}

export class Quota {
  readonly #clock: Clock;
  readonly #limits: PerMinute;
  #windowStartMs: number | undefined = undefined;
  #requests = 0;
  #tokens = 0;

  constructor(clock: Clock, limits: PerMinute) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get countsTokens(): boolean {
    return this.#limits.tokens !== undefined;
  }

  isExhausted(): boolean {
    this.#refresh();
    const { requests, tokens } = this.#limits;
    return (requests !== undefined && this.#requests >= requests) || (tokens !== undefined && this.#tokens >= tokens);
  }

  /** Returns the seconds until the window ends, rounded up, and at least 1. */
  secondsLeft(): number {
    const nowMs = this.#clock.monotonicMs();
    // Computing `start + WINDOW_MS - now` could exceed a minute because of rounding.
    const passedMs = nowMs - (this.#windowStartMs ?? nowMs);
    return Math.max(1, Math.ceil((WINDOW_MS - passedMs) / 1000));
  }

  /** The returned function replaces the estimate with the actual tokens. Later calls of it have no effect. */
  begin(estimatedTokens: number, requests = 1): (usedTokens: number) => void {
    this.#refresh();
    this.#windowStartMs ??= this.#clock.monotonicMs();
    const window = this.#windowStartMs;
    this.#requests += requests;
    this.#tokens += estimatedTokens;
    let isSettled = false;
    return (usedTokens) => {
      if (isSettled) return;
      isSettled = true;
      this.#refresh();
      // Usage of an earlier window no longer counts.
      if (this.#windowStartMs === window) this.#tokens = Math.max(0, this.#tokens + usedTokens - estimatedTokens);
    };
  }

  describe(): Record<string, unknown> {
    this.#refresh();
    return { requestsThisMinute: this.#requests, tokensThisMinute: this.#tokens };
  }

  #refresh(): void {
    if (this.#windowStartMs === undefined || this.#clock.monotonicMs() < this.#windowStartMs + WINDOW_MS) return;
    this.#windowStartMs = undefined;
    this.#requests = 0;
    this.#tokens = 0;
  }
}

export interface FailoverRules {
  /** `ownKey` is true if the gateway supplied the credential. Other targets may also reject a key from the client. */
  onStatus(status: number, ownKey: boolean): boolean;
  ejects(status: number, ownKey: boolean): boolean;
  readonly onContextLength: boolean;
}

const STATUSES: Readonly<Record<Exclude<FailoverCause, number | "contextLength" | "serverError">, readonly number[]>> =
  {
    rateLimit: [429],
    authentication: [401, 403],
    notFound: [404],
    timeout: [408],
  };

export function compileFailoverRules(causes: readonly FailoverCause[]): FailoverRules {
  const statuses = new Set<number>();
  let onServerError = false;
  let onContextLength = false;
  for (const cause of causes) {
    if (typeof cause === "number") statuses.add(cause);
    else if (cause === "serverError") onServerError = true;
    else if (cause === "contextLength") onContextLength = true;
    else for (const status of STATUSES[cause]) statuses.add(status);
  }
  return {
    onContextLength,
    onStatus(status, ownKey) {
      if (status < 400) return false;
      if (!ownKey && (status === 401 || status === 403)) return false;
      return (onServerError && status >= 500) || statuses.has(status);
    },
    // The client may cause other statuses, for example with an unknown model or an oversized request.
    ejects: (status, ownKey) =>
      status >= 500 || status === 429 || status === 408 || (ownKey && (status === 401 || status === 403)),
  };
}
