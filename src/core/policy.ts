/**
 * What a policy is: a schema, a sentence of documentation, and `compile(config) → hooks`.
 * One folder under policies/ exports one `definePolicy(...)`; the line in policies/index.ts places it in the
 * running order; validation, JSON schema, docs, effectivePolicy and the config dump derive from the definition.
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

/** Where a policy stands: on a listener, on a route, on one backend of a route, or on one model of an LLM backend. */
export type Scope = "gateway" | "route" | "backend" | "model";

/** A Reply is a normal answer that ends the request phase; a refusal is thrown as a GatewayError. */
export type HookResult = Reply | undefined | Promise<Reply | undefined>;

export interface Outcome {
  /** The status that was sent, or undefined if the connection ended before one was. */
  readonly status: number | undefined;
  /** `complete`: all was delivered. `aborted`: the client left. `failed`: the answer broke off. */
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
}

/** Who a dry run says is asking: the claims of a token that counts as verified, or a token of which all but the signature is checked. */
export type GivenToken = { readonly claims: Claims } | { readonly token: string };

/** Whom authentication let in when the request was recorded: neither token nor key was kept. */
export interface RecordedIdentity {
  readonly claims?: Claims | undefined;
  /** Keys and users, as principals are shown. */
  readonly principals: readonly string[];
}

/**
 * The steps of a request at which a policy runs, in order. All are optional. Only `request`, `recall` and `response` may
 * return a promise. The others return `undefined` or a value: their types reject an async function, and the pipeline
 * treats a promise that arrives anyway as an error (`rejectPromise`), so a rule cannot fail open by not being awaited.
 */
export interface Hooks {
  /** The request head is known. */
  request?(exchange: Exchange): HookResult;
  /**
   * The request is authenticated and authorised. Returns a charge that is applied only after every admit hook of
   * every scope agreed; if anything refuses the request later, it is given back: a refused request costs nothing.
   */
  admit?(exchange: Exchange): Charge | undefined;
  /**
   * The backend has read the body, where it reads bodies: `facts.llm` and `facts.mcp` are what it will act on, or absent.
   * For rules that read them; throws a refusal. Runs before anything else answers in the backend's place, too.
   */
  parsed?(exchange: Exchange): undefined;
  /** As `admit`, for limits whose key reads what the body says. After all `parsed` hooks. */
  admitParsed?(exchange: Exchange): Charge | undefined;
  /** The body was parsed as an LLM request; the same two steps as `admit`, for token limits. */
  llmRequest?(exchange: Exchange): Charge | undefined;
  /** The response head is ready; headers may be changed. A GatewayError thrown here replaces the response. */
  response?(exchange: Exchange): undefined | Promise<void>;
  /** The response ended, failed, or the client left. Runs exactly once for each scope that was entered. */
  settle?(exchange: Exchange, outcome: Outcome): undefined;
  /** Of a policy that verifies tokens, for a dry run: what `request` does once the token's signature holds. */
  assume?(exchange: Exchange, given: GivenToken): undefined;
  /** Of a policy that authenticates, for a rehearsal: what `request` does with a client that was identified before. */
  recall?(exchange: Exchange, identity: RecordedIdentity): HookResult;
  /** Its request hook sends something of its own: a dry run leaves the hook out. */
  readonly sends?: true;
  /** Bodies that must be whole in memory before the hook runs, because an expression reads them. */
  readonly reads?: { readonly requestBody?: boolean; readonly responseBody?: boolean };
  /** What it must know of LLM requests that go to backends which do not read bodies themselves. */
  readonly sight?: LlmSight;
  /** For a hook that reads only some bodies: up to how many bytes this one must be in memory, or undefined. */
  bodyBytes?(exchange: Exchange): number | undefined;
  /** Where it reads or adds credentials, beyond the usual headers: hidden wherever requests are shown. */
  readonly credentials?: CredentialPlaces;
  /** Request headers (lower case) that its request hook takes out or writes over. */
  readonly replaces?: readonly string[];
  /** What the pipeline itself does differently: time limits, retries. The innermost scope wins, field by field. */
  readonly settings?: Settings;
}

/**
 * Throws if a hook that must answer at once returned a promise: its rejection would be ignored and the request would
 * pass. Types rule this out for code that is checked; this covers casts and plain JavaScript.
 */
export function rejectPromise<Result>(hook: keyof Hooks | keyof Charge, result: Result): Result {
  if (typeof result !== "object" || result === null || !("then" in result)) return result;
  // The promise's own rejection must not end the process in addition.
  void Promise.resolve(result).catch(() => undefined);
  throw new Error(`the ${hook} hook returned a promise; only request, recall and response hooks may wait`);
}

export interface LlmSight {
  /** It counts tokens: of every request with a body on its own route, of LLM requests elsewhere. */
  readonly tokens?: boolean;
  /** The same for limits in shadow mode: nothing is rejected for it. */
  readonly watchedTokens?: boolean;
  /** A rule or a key reads `llm.*`: what could be read in two ways must not pass. */
  readonly model?: boolean;
}

/** What an admission hook does once all agreed. It may still refuse, if others took the last in the meantime. */
export interface Charge {
  /** Takes what is counted here. */
  take(): undefined;
  /** Gives it back: the request was refused after all. */
  giveBack(): undefined;
  /** Asks a service that counts with its answer: after everything that is counted here was taken. */
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

/** The addresses behind names of Services: they come and go without a new configuration. */
export interface EndpointDirectory {
  /** `address:port` each. The list is another one only when it changed. */
  addresses(service: string): readonly string[];
}

export interface CompileEnv {
  cel(source: string): Expression;
  readonly clock: Clock;
  readonly fetch: Fetch;
  readonly logger: Logger;
  readonly tasks: Tasks;
  readonly metrics: Metrics;
  /** Limiters show themselves here for the admin interface; the returned function takes one out again. */
  readonly limits: LimitRegistry;
  /** Where everything that requests make the gateway retain is charged. */
  readonly memory: MemoryBudget;
  /** What all threads count in; undefined if there is one thread only. */
  readonly shared?: SharedMemory | undefined;
  /** What outlives the process or is shared by replicas; use `storeNamespace`. Operations work once it serves. */
  readonly store: Store;
  /** Signs what clients show again, for example session ids; the same for all replicas. */
  readonly signingKey: SigningKey;
  /** The name of what the policy stands on, for example `route tools`: for log lines and metrics. */
  readonly owner: string;
  /** The path prefixes by which the route is matched: what a prefix rewrite replaces. */
  readonly matchedPrefixes: readonly string[];
  /** A path in the configuration file, relative to that file. */
  resolvePath(path: string): string;
  /** Where Services of a cluster are. */
  readonly endpoints?: EndpointDirectory | undefined;
  /** It comes from a cluster: it must not touch this machine. */
  readonly isConfined?: boolean;
  /** It is only looked at (validation, rehearsals): nothing may be connected to, not even ahead of the first request. */
  readonly isDry?: boolean;
  /** The text of a file that the configuration names, 1 MiB by default; throws an Error that says what is wrong with it. */
  readFile(path: string, maxBytes?: number): string;
  /** Returns the resource (buckets, pool, sessions) of an earlier configuration if its definition is unchanged, otherwise opens one. A resource that no configuration acquires is closed. */
  acquire<Resource>(
    key: string,
    definition: unknown,
    open: () => Resource,
    close?: (resource: Resource) => void | Promise<void>,
    /** Instead of `close` when only a new configuration has no use for it: it may finish what it is doing. */
    retire?: (resource: Resource) => Promise<void>,
  ): Resource;
  /** Runs when this configuration serves; never, if it is not used. */
  serving(action: () => void): void;
  /** Something that works but is probably not meant; shown at load and in the admin interface. */
  warn(message: string): void;
}

/** One rule of a limiter with its living buckets, as the admin interface shows it. */
export interface LimitView {
  readonly owner: string;
  readonly rule: Readonly<Record<string, unknown>>;
  readonly bucketsInUse: number;
  readonly refusals: number;
  /** The fullest first (least left). */
  readonly buckets: readonly {
    readonly key: string;
    readonly remaining: number;
    readonly limit: number;
    readonly resetSeconds: number;
  }[];
}

/** Of a bucket: its key (null: the shared one), how much is used, and when its window began, by the wall clock. */
export type UsedBucket = readonly [key: string | null, used: number, windowStartMs: number];

/** A rule's buckets, as the process that takes this one's place gets them. */
export interface HandedLimit {
  /** The same in both processes. */
  readonly name: string;
  /** All that is used; or what was used since this was last asked. */
  used(since: "ever" | "last"): readonly UsedBucket[];
  /** Counts what the process before this one used. */
  add(buckets: readonly UsedBucket[]): void;
}

/** One budget with what was spent of it in this period, the most first. */
export interface BudgetView {
  readonly name: string;
  readonly owner: string;
  readonly unit: "usd" | "tokens";
  readonly limit: number;
  readonly per: string;
  readonly hard: boolean;
  readonly period: string;
  readonly resetSeconds: number;
  /** How many keys have spent something. */
  readonly keysInUse: number;
  readonly keys: readonly { readonly key: string; readonly spent: number; readonly remaining: number }[];
}

export interface LimitRegistry {
  /** The same for budgets, which are in the store. */
  registerBudgets(view: (key: string | undefined) => Promise<readonly BudgetView[]>): () => void;
  budgets(key?: string): Promise<readonly BudgetView[]>;
  /** `key`: the buckets that are wanted, by a part of their key as it is shown or by the whole key. */
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
  /** The path does not name the route's resource: a route whose resource it names takes it. */
  readonly isShared?: boolean;
}

export interface PolicyDefinition<Kind extends string = string, Schema extends z.ZodType = z.ZodType> {
  readonly kind: Kind;
  readonly doc: string;
  readonly scopes: readonly Scope[];
  readonly schema: Schema;
  /** `innermost`: a route's own replaces the gateway's. Otherwise both run, each in its phase. */
  readonly merge?: "innermost";
  /** `security`: if it cannot be compiled its targets are closed, and a reload that removes it is logged. */
  readonly role?: "security";
  /** No request passes without a credential that it checked: a web page cannot attach one by itself. */
  requiresCredential?(config: z.output<Schema>): boolean;
  /** Host names in its configuration by which clients may call the gateway, for example that of the resource URL. */
  trustedHosts?(config: z.output<Schema>): readonly string[];
  /** Paths that the policy answers besides the route's own matches, for example well-known documents. */
  extraMatches?(config: z.output<Schema>): readonly ExtraMatch[];
  compile(config: z.output<Schema>, env: CompileEnv): Hooks;
}

export interface CompiledPolicy {
  readonly kind: string;
  /** What it stands on inside of a backend, for example `model fast`: for the trace and the records. */
  readonly of?: string;
  readonly hooks: Hooks;
}

/** The policies of one scope, sorted into the lists that the pipeline walks: nothing is looked up per request. */
export interface CompiledScope {
  readonly phase: Phase;
  /** As of its policies. */
  readonly of?: string;
  /** `request` hooks that run before admission: cors, authentication, authorization. */
  readonly access: readonly CompiledPolicy[];
  /** `admit` hooks; those of gateway and route run together. */
  readonly admit: readonly CompiledPolicy[];
  /** `request` hooks that run after admission: they shape the request or answer it. */
  readonly shape: readonly CompiledPolicy[];
  /** What runs when the backend has read the body: rules, then limits. */
  readonly parsed: readonly CompiledPolicy[];
  readonly admitParsed: readonly CompiledPolicy[];
  readonly llmRequest: readonly CompiledPolicy[];
  /** What its policies must know of LLM requests. */
  readonly sight: Required<LlmSight>;
  /** In the reverse of the running order. */
  readonly response: readonly CompiledPolicy[];
  readonly settle: readonly CompiledPolicy[];
  readonly settings: Settings;
  /** Nothing of it runs while the request goes in: most scopes are passed without a closure being made. */
  readonly isTransparent: boolean;
  /** Of a route: what must come even before the gateway's own access policies, such as the answer to a preflight. */
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
