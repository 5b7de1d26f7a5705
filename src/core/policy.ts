/**
 * The contract of a policy: a schema, a sentence of documentation, and `compile(config) → Hooks`.
 * One folder under policies/ exports one `definePolicy(...)`; its line in policies/index.ts sets the running order.
 * Validation, JSON schema, docs, effectivePolicy and the config dump derive from the definition.
 */
import type { z } from "zod";
import type { Clock } from "../base/clock.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { SharedMemory } from "../base/shared-memory.ts";
import type { Tasks } from "../base/tasks.ts";
import type { Expression } from "../cel/expression.ts";
import type { Fetch } from "../http/fetch.ts";
import type { TlsOptions } from "../http/http-client.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { Metrics } from "../observe/log/metrics.ts";
import type { Phase } from "../observe/trace/events.ts";
import type { CredentialPlaces } from "../observe/trace/redact.ts";
import type { SigningKey } from "../store/signing-key.ts";
import type { Store } from "../store/store.ts";
import type { Exchange } from "./exchange.ts";
import type { Claims } from "./facts.ts";
import type { Reply } from "./reply.ts";

/** Where a policy is attached: to a listener, a route, one backend of a route, or one model of an LLM backend. */
export type Scope = "gateway" | "route" | "backend" | "model";

/** A Reply ends the request phase with a normal response; a hook rejects a request by throwing a GatewayError. */
export type HookResult = Reply | undefined | Promise<Reply | undefined>;

export interface Outcome {
  /** The status that was sent; undefined if the connection closed before a response head. */
  readonly status: number | undefined;
  /** `complete`: the whole response was delivered. `aborted`: the client disconnected. `failed`: the response broke off. */
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
}

/** The identity given to a dry run: claims that count as verified, or a token whose signature is not checked. */
export type GivenToken = { readonly claims: Claims } | { readonly token: string };

/** The identity that authentication established when the request was recorded. Tokens and keys are not recorded. */
export interface RecordedIdentity {
  readonly claims?: Claims | undefined;
  /** API keys and users, in the form of `shownPrincipal`. */
  readonly principals: readonly string[];
}

/**
 * The steps of a request at which a policy runs, in order. All are optional. Only `request`, `recall` and `response` may
 * return a promise. The others return `undefined` or a value: their types reject an async function, and the pipeline
 * treats a promise that arrives anyway as an error (`rejectPromise`), so a rule cannot fail open by not being awaited.
 */
export interface Hooks {
  /** Runs when the request head is known. */
  request?(exchange: Exchange): HookResult;
  /**
   * Runs when the request is authenticated and authorized. The returned charge is applied only after the admit hooks of
   * all scopes have agreed, and given back if the request is rejected later: a rejected request costs nothing.
   */
  admit?(exchange: Exchange): Charge | undefined;
  /**
   * Runs when the backend has parsed the body, for rules that read `facts.llm` and `facts.mcp`: they hold what the
   * backend will act on, or are absent. Also runs before anything responds in the backend's place, such as a cache.
   */
  parsed?(exchange: Exchange): undefined;
  /** Like `admit`, for limits whose key reads the body. Runs after all `parsed` hooks. */
  admitParsed?(exchange: Exchange): Charge | undefined;
  /** Like `admit`, for token limits: runs when the body was parsed as an LLM request. */
  llmRequest?(exchange: Exchange): Charge | undefined;
  /** Runs when the response head is ready and may change its headers. A GatewayError thrown here replaces the response. */
  response?(exchange: Exchange): undefined | Promise<void>;
  /** Runs exactly once for each scope that was entered, when the response ended or failed or the client disconnected. */
  settle?(exchange: Exchange, outcome: Outcome): undefined;
  /** For dry runs of a policy that verifies tokens: does what `request` does once the signature is verified. */
  assume?(exchange: Exchange, given: GivenToken): undefined;
  /** For rehearsals of a policy that authenticates: does what `request` does with a client that was identified before. */
  recall?(exchange: Exchange, identity: RecordedIdentity): HookResult;
  /** The request hook sends requests of its own, so a dry run skips it. */
  readonly sends?: true;
  /** The bodies that must be buffered before the hook runs, because an expression reads them. */
  readonly reads?: { readonly requestBody?: boolean; readonly responseBody?: boolean };
  /** What the hooks read of LLM requests to backends that do not parse bodies themselves. */
  readonly sight?: LlmSight;
  /** For a hook that reads only some bodies: how many bytes of this one to buffer at most; undefined for none. */
  bodyBytes?(exchange: Exchange): number | undefined;
  /** Where the policy reads or adds credentials besides the usual headers. Every output redacts these places. */
  readonly credentials?: CredentialPlaces;
  /** Request headers (lower case) that the request hook removes or overwrites. */
  readonly replaces?: readonly string[];
  /** Settings of the pipeline itself, such as timeouts and retries. The innermost scope wins, field by field. */
  readonly settings?: Settings;
}

/**
 * Throws if a synchronous hook returned a promise, because its rejection would be ignored and the request would pass.
 * The types rule this out for checked code; this covers casts and plain JavaScript.
 */
export function rejectPromise<Result>(hook: keyof Hooks | keyof Charge, result: Result): Result {
  if (typeof result !== "object" || result === null || !("then" in result)) return result;
  // Without a handler, the promise's own rejection would end the process.
  void Promise.resolve(result).catch(() => undefined);
  throw new Error(`the ${hook} hook returned a promise; only request, recall and response hooks may wait`);
}

export interface LlmSight {
  /** The policy counts tokens: of every request with a body if it is on the route, otherwise of LLM requests. */
  readonly tokens?: boolean;
  /** The same for limits in shadow mode, which reject nothing. */
  readonly watchedTokens?: boolean;
  /** A rule or a key reads `llm.*`, so bodies that two parsers could read differently are rejected. */
  readonly model?: boolean;
}

/** The charge of one admission hook, applied once all hooks agreed. It may still reject if another request was faster. */
export interface Charge {
  /** Charges the local counters. */
  take(): undefined;
  /** Refunds the charge because the request was rejected. */
  giveBack(): undefined;
  /** Calls a service that counts as it responds. Runs after all local counters were charged. */
  confirm?(): Promise<void>;
}

export interface Settings {
  /** From the request's arrival to the response head, over all attempts. */
  readonly requestTimeoutMs?: number;
  /** The same for one attempt. */
  readonly backendTimeoutMs?: number;
  readonly retry?: RetrySettings;
  /** How connections to the backend use TLS. */
  readonly backendTls?: TlsOptions;
}

export interface RetrySettings {
  /** Attempts after the first. */
  readonly attempts: number;
  readonly backoffMs: number;
  /** Response statuses that count as failures. */
  readonly codes: ReadonlySet<number>;
}

/** The endpoint addresses of Kubernetes Services, which change without a new configuration. */
export interface EndpointDirectory {
  /** Entries are `address:port`. The array identity changes only when its contents do. */
  addresses(service: string): readonly string[];
}

export interface CompileEnv {
  cel(source: string): Expression;
  readonly clock: Clock;
  readonly fetch: Fetch;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly metrics: Metrics;
  /** Where limiters register for the admin interface and for upgrades. */
  readonly limits: LimitRegistry;
  /** The account for every byte that requests make the gateway retain. */
  readonly memory: MemoryBudget;
  /** The memory in which all threads count; undefined with a single thread. */
  readonly shared?: SharedMemory | undefined;
  /** Data that outlives the process or is shared by replicas; use `storeNamespace`. Usable once the gateway serves. */
  readonly store: Store;
  /** Signs values that clients send back, for example session ids. The same for all replicas. */
  readonly signingKey: SigningKey;
  /** The name of what the policy is attached to, for example `route tools`, for log lines and metrics. */
  readonly owner: string;
  /** The path prefixes that match the route; a prefix rewrite replaces them. */
  readonly matchedPrefixes: readonly string[];
  /** Resolves a path in the configuration file relative to that file. */
  resolvePath(path: string): string;
  /** The endpoints of a cluster's Services. */
  readonly endpoints?: EndpointDirectory | undefined;
  /** The policy comes from a cluster, so it must not reach files or addresses of this machine. */
  readonly isConfined?: boolean;
  /** The configuration is only validated or rehearsed, so nothing may be connected to. */
  readonly isDry?: boolean;
  /** Reads a file that the configuration names, at most 1 MiB by default. Throws an Error that names the problem. */
  readFile(path: string, maxBytes?: number): string;
  /** Returns the resource (buckets, pool, sessions) of an earlier configuration if its definition is unchanged, otherwise opens one. A resource that no configuration acquires is closed. */
  acquire<Resource>(
    key: string,
    definition: unknown,
    open: () => Resource,
    close?: (resource: Resource) => void | Promise<void>,
    /** Called instead of `close` when a new configuration does not acquire the resource, which may finish its work. */
    retire?: (resource: Resource) => Promise<void>,
  ): Resource;
  /** Runs the action when this configuration starts to serve; never if it is discarded. */
  serving(action: () => void): void;
  /** Reports a valid setting that is probably a mistake, at load and in the admin interface. */
  warn(message: string): void;
}

/** One rule of a limiter with its current buckets, as the admin interface shows it. */
export interface LimitView {
  readonly owner: string;
  readonly rule: Readonly<Record<string, unknown>>;
  readonly bucketsInUse: number;
  readonly refusals: number;
  /** Sorted by remaining units, the emptiest bucket first. */
  readonly buckets: readonly {
    readonly key: string;
    readonly remaining: number;
    readonly limit: number;
    readonly resetSeconds: number;
  }[];
}

/** The used part of a bucket: its key (null for the shared one), the amount, and the start of its window in wall-clock time. */
export type UsedBucket = readonly [key: string | null, used: number, windowStartMs: number];

/** The buckets of one rule as an in-place upgrade hands them to the new process. */
export interface HandedLimit {
  /** Identifies the rule in both processes. */
  readonly name: string;
  /** The amounts used in total, or since the previous call. */
  used(since: "ever" | "last"): readonly UsedBucket[];
  /** Adds the amounts that the previous process used. */
  add(buckets: readonly UsedBucket[]): void;
}

/** One budget and its spending in the current period, sorted by the amount spent. */
export interface BudgetView {
  readonly name: string;
  readonly owner: string;
  readonly unit: "usd" | "tokens";
  readonly limit: number;
  readonly per: string;
  readonly hard: boolean;
  readonly period: string;
  readonly resetSeconds: number;
  /** The number of keys that spent anything. */
  readonly keysInUse: number;
  readonly keys: readonly { readonly key: string; readonly spent: number; readonly remaining: number }[];
}

export interface LimitRegistry {
  /** Like `register`, for budgets, which are kept in the store. */
  registerBudgets(view: (key: string | undefined) => Promise<readonly BudgetView[]>): () => void;
  budgets(key?: string): Promise<readonly BudgetView[]>;
  /** Returns a function that removes the limiter again. `key` selects buckets by a part of the shown key or by the whole key. */
  register(view: (key: string | undefined) => readonly LimitView[], handed?: HandedLimit): () => void;
  handed(): readonly HandedLimit[];
  views(key?: string): readonly LimitView[];
}

export interface PathMatch {
  readonly exact?: string;
  readonly pathPrefix?: string;
}

export interface ExtraMatch {
  readonly exact: string;
  /** The path does not name the route's resource; a route whose resource it names takes precedence. */
  readonly isShared?: boolean;
}

export interface PolicyDefinition<Kind extends string = string, Schema extends z.ZodType = z.ZodType> {
  readonly kind: Kind;
  readonly doc: string;
  readonly scopes: readonly Scope[];
  readonly schema: Schema;
  /** `innermost`: the route's policy replaces the gateway's. Otherwise both run, each in its phase. */
  readonly merge?: "innermost";
  /** `security`: if the policy cannot be compiled, its targets reject all requests; a reload that removes it is logged. */
  readonly role?: "security";
  /** True if every request needs a credential that the policy checks and that a web page cannot attach by itself. */
  requiresCredential?(config: z.output<Schema>): boolean;
  /** Host names in the configuration under which clients may call the gateway, for example that of the resource URL. */
  trustedHosts?(config: z.output<Schema>): readonly string[];
  /** Paths that the policy serves besides the route's own matches, for example well-known documents. */
  extraMatches?(config: z.output<Schema>): readonly ExtraMatch[];
  compile(config: z.output<Schema>, env: CompileEnv): Hooks;
}

export interface CompiledPolicy {
  readonly kind: string;
  /** What the policy is attached to inside a backend, for example `model fast`; shown in traces and records. */
  readonly of?: string;
  readonly hooks: Hooks;
}

/** The policies of one scope, sorted at load into the lists that the pipeline runs. */
export interface CompiledScope {
  readonly phase: Phase;
  /** The same as `CompiledPolicy.of`. */
  readonly of?: string;
  /** `request` hooks that run before admission: CORS, authentication, authorization. */
  readonly access: readonly CompiledPolicy[];
  /** `admit` hooks; those of gateway and route run together. */
  readonly admit: readonly CompiledPolicy[];
  /** `request` hooks that run after admission: they transform the request or respond to it. */
  readonly shape: readonly CompiledPolicy[];
  /** Rules, then limits, that run when the backend has parsed the body. */
  readonly parsed: readonly CompiledPolicy[];
  readonly admitParsed: readonly CompiledPolicy[];
  readonly llmRequest: readonly CompiledPolicy[];
  /** What the policies read of LLM requests. */
  readonly sight: Required<LlmSight>;
  /** In reverse running order. */
  readonly response: readonly CompiledPolicy[];
  readonly settle: readonly CompiledPolicy[];
  readonly settings: Settings;
  /** The scope has no request hooks, so the pipeline skips it without allocating a closure. */
  readonly isTransparent: boolean;
  /** Hooks of a route that run before the gateway's access policies, such as the response to a CORS preflight. */
  readonly preface?: CompiledScope;
  readonly readsResponseBody: boolean;
  /** The policies' configuration with secrets redacted, for the trace and the dump. */
  readonly effectivePolicy: Readonly<Record<string, unknown>>;
}

export function definePolicy<const Kind extends string, Schema extends z.ZodType>(
  definition: PolicyDefinition<Kind, Schema>,
): PolicyDefinition<Kind, Schema> {
  return definition;
}
