/**
 * Defines the contract of a policy, which consists of a schema, a documentation sentence, and `compile(config) →
 * Hooks`.
 */

import type { z } from "zod";
import type { Clock } from "../base/clock.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { Owner, ProcessResource } from "../base/owner.ts";
import type { ClaimMemory, OwnedMemory } from "../base/shared-memory.ts";
import type { Tasks } from "../base/tasks.ts";
import type { Expression } from "../cel/expression.ts";
import type { EgressGuard } from "../http/egress-guard.ts";
import type { Fetch } from "../http/fetch.ts";
import type { HeaderList } from "../http/headers.ts";
import type { TlsOptions } from "../http/http-client.ts";
import type { Logger } from "../record/log/logger.ts";
import type { Metrics } from "../record/log/metrics.ts";
import type { Phase } from "../record/trace/record.ts";
import type { CredentialPlaces } from "../record/trace/redact.ts";
import type { OwnedStore } from "../store/owned-store.ts";
import type { SigningKey } from "../store/signing-key.ts";
import type { DryEnv, GivenToken, RecordedIdentity } from "./dry-env.ts";
import type { Exchange } from "./exchange.ts";
import type { Reply } from "./reply.ts";
import type { SessionPersistence } from "./session-persistence.ts";

/** A policy applies to a listener, a route, one backend of a route, or one model of an LLM backend. */
export type Scope = "gateway" | "route" | "backend" | "model";

/** A Reply ends the request phase with this response. A thrown GatewayError rejects the request. */
export type HookResult = Reply | undefined | Promise<Reply | undefined>;

export interface Outcome {
  /** The status is undefined if the connection closed before there was a response. */
  readonly status: number | undefined;
  /** `aborted` means that the client disconnected. `failed` means that the response was truncated. */
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
}

/** Describes a client that the configuration itself names: an API key or a user with a password. */
export interface ConfiguredPrincipal {
  readonly kind: "key" | "user";
  /** The principal is in the form that outputs show, for example `basic:"alice"`. */
  readonly principal: string;
  readonly attributes: Readonly<Record<string, unknown>>;
}

/**
 * The steps of a request at which a policy runs. `head` functions run before the backend has read the request's body,
 * `body` functions when it has parsed it, so that rules can read attributes such as `llm.*`. Only `head` functions of
 * `access`, `shape`, and `response` may return a promise.
 */
export interface Hooks {
  /** Checks the client and the request, before any limit counts it. */
  readonly access?: RequestHook;
  /** Counts the request in limits, after all access hooks of the gateway and the route. */
  readonly admit?: AdmitHook;
  /** Changes the request or responds to it. The hooks of a backend run for each attempt. */
  readonly shape?: RequestHook;
  readonly response?: ResponseHook;
  /** Runs once, after the response ended or failed or the client disconnected. */
  settle?(exchange: Exchange, outcome: Outcome): undefined;
  /** Requests LLM attributes on backends that do not parse bodies themselves. */
  readonly sight?: LlmSight;
  readonly clients?: PolicyClients;
  /** Headers that expressions compute. */
  readonly computedHeaders?: readonly { readonly name: string; readonly source: string }[];
  /** Changes settings of the pipeline, such as timeouts and retries. The innermost scope wins, field by field. */
  readonly settings?: Settings;
}

export interface RequestHook {
  head?(exchange: Exchange): HookResult;
  /** Also runs before a response that replaces the backend's. */
  body?(exchange: Exchange): undefined;
  /** Returns the maximum number of bytes of the body to buffer before `head`, or undefined if it does not read it. */
  bodyBytes?(exchange: Exchange): number | undefined;
  /** `head` removes or overwrites these lowercase request headers. */
  readonly replaces?: readonly string[];
}

/** The returned charges are applied if all functions of the step succeed, and refunded if the request is rejected later. */
export interface AdmitHook {
  head?(exchange: Exchange): Charge | undefined;
  /** For limits whose key reads the body. */
  body?(exchange: Exchange): Charge | undefined;
  /** Runs when the body has been parsed as an LLM request and the backend is about to be called. */
  call?(exchange: Exchange): Charge | undefined;
}

export interface ResponseHook {
  /** Runs when the response head is ready and may change its headers. A thrown GatewayError replaces the response. */
  head(exchange: Exchange): undefined | Promise<void>;
  /** An expression reads the response body, so the pipeline buffers it if it is small enough. */
  readonly readsBody?: boolean;
  /**
   * Returns the maximum number of bytes of the backend's response body to buffer before `head`, or undefined if it does
   * not need the body. A larger body is rejected.
   */
  bodyBytes?(exchange: Exchange): number | undefined;
}

/** What a policy knows of its clients. */
export interface PolicyClients {
  /** Lists the clients that the policy's configuration names, for access reviews. */
  configured?(): readonly ConfiguredPrincipal[];
  /** Outputs redact the credentials at these locations. */
  readonly credentials?: CredentialPlaces;
  /** Clients without credentials log in at these paths. The access hook responds to all requests for them. */
  readonly loginPaths?: { has(path: string): boolean };
}

/** Limits the request body that an expression can read. */
const EXPRESSION_BODY_BYTES = 2 * 1024 * 1024;

/** Buffers the request body for a hook whose expressions read it. */
export function bodyFor(
  expressions: readonly (Pick<Expression, "reads"> | undefined)[],
): Pick<RequestHook, "bodyBytes"> {
  const reads = expressions.some((one) => one?.reads("request.body") === true);
  return reads ? { bodyBytes: () => EXPRESSION_BODY_BYTES } : {};
}

/** What a policy that reads credentials does with an identity that a dry run names. */
export interface NamedIdentity {
  given?(exchange: Exchange, token: GivenToken): undefined;
  recorded?(exchange: Exchange, identity: RecordedIdentity): HookResult;
}

/** Every hook that authenticates clients is made here. */
export function authenticating({ dry }: Pick<CompileEnv, "dry">, hook: RequestHook, named: NamedIdentity): RequestHook {
  if (dry === undefined) return hook;
  return {
    ...hook,
    head(exchange) {
      const recorded = dry.recorded(exchange);
      if (recorded && named.recorded) return named.recorded(exchange, recorded);
      const given = dry.given(exchange);
      return given && named.given ? named.given(exchange, given) : hook.head?.(exchange);
    },
  };
}

/** Every hook whose `head` sends requests, or waits, is made here. */
export function sending({ dry }: Pick<CompileEnv, "dry">, kind: string, hook: RequestHook): RequestHook {
  return dry === undefined ? hook : { ...hook, head: (exchange) => dry.skipped(exchange, kind) };
}

/**
 * Throws if a synchronous hook returned a promise, because its rejection would be ignored and the request would pass.
 */
export function rejectPromise<Result>(hook: string, result: Result): Result {
  if (typeof result !== "object" || result === null || !("then" in result)) return result;
  // An unhandled rejection would be logged as a second error.
  void Promise.resolve(result).catch(() => undefined);
  throw new Error(`the ${hook} hook returned a promise; only access, shape and response hooks may wait`);
}

export interface LlmSight {
  readonly tokens?: boolean;
  /** Works like `tokens`, for limits in shadow mode, which reject nothing. */
  readonly watchedTokens?: boolean;
  /**
   * True if a rule or a limit key reads `llm.*`, so bodies that two parsers could interpret differently are rejected.
   */
  readonly model?: boolean;
  /** True if the policy checks or changes the bodies of LLM calls, so bodies of all methods are read. */
  readonly call?: boolean;
}

/**
 * The pipeline applies the charges once all admission hooks have succeeded. `take` can still reject the request,
 * because a concurrent request may have exhausted the limit.
 */
export interface Charge {
  take(): undefined;
  giveBack(): undefined;
  /** Calls a service that charges the request when it responds. Runs after all local counters have been charged. */
  confirm?(): Promise<void>;
}

export interface Settings {
  /** The timeout covers the time from the request's arrival to the response head, over all attempts. */
  readonly requestTimeoutMs?: number;
  /** The timeout covers the time until the response head of one target. */
  readonly backendTimeoutMs?: number;
  readonly retry?: RetrySettings;
  readonly backendTls?: TlsOptions;
  readonly sessions?: SessionPersistence;
}

export interface RetrySettings {
  /** The first attempt is not counted. */
  readonly attempts: number;
  readonly backoffMs: number;
  readonly codes: ReadonlySet<number>;
  /** Returns whether the request may be retried. Without it, every request may. */
  precondition?(exchange: Exchange): boolean;
  /** Returns whether a response counts as a failure, in addition to `codes`. */
  condition?(exchange: Exchange, status: number, headers: HeaderList): boolean;
}

/** Provides the endpoint addresses of Kubernetes Services, which change without a new configuration. */
export interface EndpointDirectory {
  /** Entries are `address:port`. The array identity changes only if the contents do. */
  addresses(service: string): readonly string[];
}

/** What only the operator's own configuration may use: files, variables, processes, and credentials of this machine. */
export interface Machine {
  /** Resolves a path relative to the configuration file that contains it. */
  resolvePath(path: string): string;
  /** The environment variables of the process. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Throws "a document of a cluster cannot …" for a document that must not use this machine. */
export function machineOf({ machine }: { readonly machine: Machine | undefined }, use: string): Machine {
  if (machine === undefined) throw new Error(`a document of a cluster cannot ${use}`);
  return machine;
}

export interface CompileEnv {
  cel(source: string): Expression;
  readonly clock: Clock;
  /** Everything that opens a connection requires it. It confines what the author of the configuration can reach. */
  readonly egress: EgressGuard;
  /** Applies `egress`. */
  readonly fetch: Fetch;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly metrics: Metrics;
  /** Limiters register here for the admin interface and for upgrades. */
  readonly limits: LimitRegistry;
  /** Requests are charged for the memory that the gateway retains for them. */
  readonly memory: MemoryBudget;
  /** Worker threads share their counters in this memory. The value is undefined with a single thread. */
  readonly shared?: OwnedMemory | undefined;
  /** The owner's part of the store, which is available once the gateway serves. */
  readonly store: OwnedStore;
  /** Signs values that clients send back, for example session ids. */
  readonly signingKey: SigningKey;
  /** Keys and signatures of state that documents of other owners can reach must contain it. */
  readonly owner: Owner;
  /** Names the scope of the policy in log lines and metrics, for example `route tools`. */
  readonly scopeName: string;
  /** A prefix rewrite replaces these path prefixes of the route. */
  readonly matchedPrefixes: readonly string[];
  /** Undefined for a document of a cluster. Use `machineOf`, which says so. */
  readonly machine: Machine | undefined;
  /** Set if the configuration is compiled for dry runs. */
  readonly dry?: DryEnv | undefined;
  readonly endpoints?: EndpointDirectory | undefined;
  /** Reads a file that the configuration names, at most 1 MiB by default. Throws an Error that names the problem. */
  readFile(path: string, maxBytes?: number): string;
  /**
   * Returns the resource with this name (buckets, pool, sessions) if its definition is unchanged, also from an earlier
   * configuration, and otherwise opens a new one. The documents of another namespace have other resources. The gateway
   * closes a resource when no configuration holds it.
   */
  acquire<Resource>(
    name: string,
    definition: unknown,
    open: () => Resource,
    close?: (resource: Resource) => void | Promise<void>,
    /**
     * Called instead of `close` if a new configuration does not acquire the resource, to finish pending work first.
     */
    retire?: (resource: Resource) => Promise<void>,
  ): Resource;
  /** Returns a resource that all owners of the process share. */
  acquireShared<Resource>(
    name: ProcessResource,
    open: (claim: ClaimMemory) => Resource,
    close?: (resource: Resource) => void | Promise<void>,
  ): Resource;
  /** Runs the action when this configuration starts to serve, and never if it is discarded. */
  serving(action: () => void): void;
  /** Reports a valid setting that is probably a mistake, at load and in the admin interface. */
  warn(message: string): void;
}

export interface LimitView {
  readonly owner: string;
  readonly rule: Readonly<Record<string, unknown>>;
  readonly bucketsInUse: number;
  readonly refusals: number;
  /** The emptiest bucket is first. */
  readonly buckets: readonly {
    readonly key: string;
    readonly remaining: number;
    readonly limit: number;
    readonly resetSeconds: number;
  }[];
}

/** The key is null for the shared bucket. The start of the window is wall-clock time. */
export type UsedBucket = readonly [key: string | null, used: number, windowStartMs: number];

/** Transfers the buckets of one rule to the new process during an in-place upgrade. */
export interface HandedLimit {
  /** The name identifies the rule in both processes. */
  readonly name: string;
  /** Returns the amounts used in total, or since the previous call. */
  used(since: "ever" | "last"): readonly UsedBucket[];
  add(buckets: readonly UsedBucket[]): void;
}

/** The keys are sorted by the amount spent. */
export interface BudgetView {
  readonly name: string;
  readonly owner: string;
  readonly unit: "usd" | "tokens";
  readonly limit: number;
  readonly per: string;
  readonly hard: boolean;
  readonly period: string;
  readonly resetSeconds: number;
  /** Counts the keys with spending in the period. */
  readonly keysInUse: number;
  readonly keys: readonly { readonly key: string; readonly spent: number; readonly remaining: number }[];
}

export interface LimitRegistry {
  /** Works like `register`, for budgets, which are kept in the store. */
  registerBudgets(
    view: (key: string | undefined) => Promise<readonly BudgetView[]>,
    options: { readonly requiresStore: boolean },
  ): () => void;
  /** Returns whether calls are rejected while the store is unavailable. */
  requiresStore(): boolean;
  budgets(key?: string): Promise<readonly BudgetView[]>;
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
  /** True if the path does not name the route's resource, so a route whose resource it names takes precedence. */
  readonly isShared?: boolean;
}

/**
 * States how strictly the gateway treats other spellings of a route's requests. `route`: another spelling must not reach
 * a backend around the route. `paths`: in addition, the policy or its service reads the path, so the route's own paths
 * must not be ambiguous.
 */
export type Protection = "none" | "route" | "paths";

export interface SharedState {
  /** Names the state, for example `budgets`. */
  readonly what: string;
  /** True if a common `config.sessionKey` is enough, without a common store. */
  readonly isSigned?: true;
}

export interface PolicyDefinition<Kind extends string = string, Schema extends z.ZodType = z.ZodType> {
  readonly kind: Kind;
  readonly doc: string;
  readonly scopes: readonly Scope[];
  readonly schema: Schema;
  /** With `innermost`, the policy of an inner scope replaces that of an outer scope. Otherwise all of them run. */
  readonly merge?: "innermost";
  /** If a `security` policy in a GatewayPolicy cannot be compiled, its target rejects all requests. */
  readonly role?: "security";
  /** Anything but `none` for a policy that rejects, limits, charges, or guards requests with this configuration. */
  protection(config: z.output<Schema>): Protection;
  /**
   * Lists of entries that apply independently of each other. If a GatewayPolicy has invalid entries, the others apply.
   */
  readonly entries?: readonly (readonly [string] | readonly [string, string])[];
  /** True for authentication and authorization, which on a gateway do not apply to the login paths of its routes. */
  readonly exemptsLogins?: true;
  /** Returns true if every request needs a verified credential that a web page cannot attach by itself. */
  requiresCredential?(config: z.output<Schema>): boolean;
  /** Returns the host names under which clients can call the gateway, for example the host of the resource URL. */
  trustedHosts?(config: z.output<Schema>): readonly string[];
  /** Returns paths that the policy serves in addition to the route's matches, for example well-known documents. */
  extraMatches?(config: z.output<Schema>): readonly ExtraMatch[];
  /**
   * Returns the state of the policy that several gateways must share, with the configuration as written, which may not
   * be valid.
   */
  sharedState?(written: Readonly<Record<string, unknown>>): SharedState | undefined;
  /** Replaces aliases in the written configuration by the names that `/config_dump` and traces show. */
  shown?(written: Readonly<Record<string, unknown>>): Record<string, unknown>;
  compile(config: z.output<Schema>, env: CompileEnv): Hooks;
}

export interface CompiledPolicy {
  readonly kind: string;
  readonly phase: Phase;
  /** Names the entity inside a backend that has the policy, for example `model fast`. */
  readonly of?: string;
  readonly hooks: Hooks;
  /** Returns the position of the policy, or of the rule with this source, for example `config.yaml:12:5`. */
  writtenAt?(rule?: string): string;
}

/** Holds the policies of one scope, sorted at load into the lists that the pipeline runs. */
export interface CompiledScope {
  readonly phase: Phase;
  readonly of?: string;
  readonly access: readonly CompiledPolicy[];
  /** The `head` functions of the gateway and the route run together. */
  readonly admit: Readonly<Record<keyof AdmitHook, readonly CompiledPolicy[]>>;
  readonly shape: readonly CompiledPolicy[];
  /** The `body` functions of access and shape hooks. */
  readonly body: readonly CompiledPolicy[];
  readonly sight: Required<LlmSight>;
  /** The response hooks are in the reverse order of the request hooks. */
  readonly response: readonly CompiledPolicy[];
  readonly settle: readonly CompiledPolicy[];
  readonly settings: Settings;
  /** True if no access or shape hook of the scope runs on the head of a request. */
  readonly isTransparent: boolean;
  /** These hooks of a route run before the gateway's access policies, for example to respond to a CORS preflight. */
  readonly preface?: CompiledScope;
  /** Replaces the scope of a gateway for the login paths of a route. */
  readonly forLogins?: CompiledScope;
  /** The login paths of a route's policies. */
  readonly loginPaths?: { has(path: string): boolean };
  readonly readsResponseBody: boolean;
  /** Secrets are redacted, because the trace and the config dump show this configuration. */
  readonly effectivePolicy: Readonly<Record<string, unknown>>;
}

export function definePolicy<const Kind extends string, Schema extends z.ZodType>(
  definition: PolicyDefinition<Kind, Schema>,
): PolicyDefinition<Kind, Schema> {
  return definition;
}
