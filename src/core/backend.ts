/**
 * The contract of a backend, which produces the response: a plain HTTP server, MCP servers, an LLM provider, or the
 * gateway itself. A backend reports through callbacks and streams bodies without buffering them.
 */
import type { Duplex } from "node:stream";
import type { z } from "zod";
import type { HeaderList } from "../http/headers.ts";
import type { HttpResponseReceiver, TlsOptions } from "../http/http-client.ts";
import type { ErrorCode, ErrorSource, FailureCode, GatewayError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { BackendFacts, LlmFacts } from "./facts.ts";
import type { CompiledScope, CompileEnv, ExtraMatch, HookResult, PathMatch } from "./policy.ts";
import type { Reply } from "./reply.ts";
import type { WireTap } from "./wire.ts";

/**
 * Receives the response of a backend for one attempt. The contract is that of `HttpResponseReceiver`, so a connection
 * can call it directly. The pipeline's implementation (`pipeline/phases/attempt.ts`) also ignores calls after `end`,
 * `fail` or `BackendRun.abort`, accepts calls before `Backend.call` has returned, and never throws.
 */
export interface ResponseReceiver extends HttpResponseReceiver, WireTap {
  end(trailers?: readonly string[]): void;
  /** Reports a failure in the backend's own protocol for the log and the records, before or after `head`. */
  problem(problem: BackendProblem): void;
  /** Ends the attempt. Before `head` it becomes an error response; after `head` the client's connection is cut. */
  fail(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface BackendProblem {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  /** For the log and the records, which truncate it and redact the client's credentials. */
  readonly reason: string;
  /** The code for `x-gateway-error`, if the gateway itself wrote the response. Valid only before `head`. */
  readonly said?: ErrorCode;
}

/** A call in progress. */
export interface BackendRun {
  abort(): void;
  resume(): void;
  /** For a backend that fails over: the number of targets left after the current one. */
  readonly spareTargets?: number;
  /** Moves on to the next target because the current one timed out. False if none is left or a response has started. */
  tryNext?(reason: string): boolean;
}

export interface Backend {
  readonly facts: BackendFacts;
  /** Outlier detection: a route with several backends skips an ejected one. */
  readonly health?: { readonly isEjected: boolean };
  /** The timeout for the response head, unless a timeout policy sets one. */
  readonly defaultTimeoutMs: number;
  /**
   * Runs before the call, to read the request's body and to choose a target. It may respond or reject. `needsModel` is
   * true if a rule or a key reads the requested model.
   */
  prepare?(exchange: Exchange, needsModel: boolean): HookResult;
  /** Replaces `prepare` in a rehearsal: restores the recorded attributes of an LLM request whose body was not kept. */
  recall?(exchange: Exchange, recorded: LlmFacts): void;
  call(exchange: Exchange, call: ResponseReceiver): BackendRun;
  /** Renders an error in the protocol of this backend's clients. Undefined for the default form. */
  errorReply?(exchange: Exchange, error: GatewayError): Reply | undefined;
  /**
   * The policies inside the backend that apply to this request, for example those of the requested model, outermost
   * first. Called for each attempt after the rules and limits of all other scopes. Undefined if the backend has none.
   */
  inner?(exchange: Exchange): readonly CompiledScope[];
  /** Runs at shutdown: ends streams that have no end of their own. Calls in flight continue. */
  drain?(): void;
  /** Lists the current tools of the servers for the admin interface. Opens connections and starts processes. */
  inspect?(only?: ReadonlySet<string>): Promise<readonly InspectedTarget[]>;
  /** Lists the tools that were withheld from clients, as their sessions saw them. Opens and starts nothing. */
  withheld?(): readonly InspectedTarget[];
  /** The absolute path of the lock file with the accepted tools; undefined if there is none or it is read-only. */
  readonly lockFile?: string;
  /** The accounts that users connected at the servers, for the admin interface. */
  readonly accounts?: ConnectedAccounts;
  /** Ends the client session with this short id if it is unique. Returns the number of sessions with the id. */
  endSession?(shown: string): number;
  /** For `/config_dump`; without secrets. */
  describe(): Record<string, unknown>;
}

/** A tool of a server, listed outside any session and compared with the loaded lock file. */
export interface InspectedTool {
  readonly name: string;
  readonly state: "accepted" | "changed" | "new";
  /** The server's definition, without members that are not pinned. */
  readonly definition: Readonly<Record<string, unknown>>;
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

export interface InspectedTarget {
  readonly target: string;
  readonly tools: readonly InspectedTool[];
  /** Why the server could not be listed. `tools` then holds the tools that sessions saw and withheld. */
  readonly error?: string;
}

export interface InspectedBackend {
  readonly backend: string;
  readonly targets: readonly InspectedTarget[];
}

/** Connected accounts without their tokens. `test` and `revoke` return undefined for an unknown id. */
export interface ConnectedAccounts {
  list(): Promise<readonly ({ readonly id: string } & object)[]>;
  /** Checks whether the server accepts the account's token, which is refreshed if necessary. */
  test(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
  /** Deletes the tokens and revokes them at the server. */
  revoke(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
}

export interface BackendDefinition<Key extends string = string, Schema extends z.ZodType = z.ZodType> {
  /** The key under `backends[]` that selects this kind. */
  readonly key: Key;
  readonly doc: string;
  readonly schema: Schema;
  /** The schema with policies inside the backend, for kinds that allow them. `policies` is the schema of these. */
  schemaWith?(policies: z.ZodType<Readonly<Record<string, unknown>>>): z.ZodType;
  /** The policies inside the configured backend. */
  innerPolicies?(config: z.output<Schema>): readonly InnerPolicies[];
  /** The paths of a route that has no `matches` and only backends of this kind. */
  readonly defaultPaths?: readonly PathMatch[];
  /** A top-level section that is short for a gateway with its own port and one route to one such backend. */
  readonly section?: { readonly name: string; readonly defaultPort: number; readonly paths?: readonly PathMatch[] };
  /** Additional paths that the backend serves on a separate route without authentication. */
  extraMatches?(config: z.output<Schema>, paths: readonly string[]): readonly ExtraMatch[];
  compile(config: z.output<Schema>, env: BackendEnv): Backend;
}

export interface InnerPolicies {
  /** For example `model fast`. */
  readonly name: string;
  /** The path of `policies` within the backend's configuration. */
  readonly path: readonly (string | number)[];
  readonly policies: Readonly<Record<string, unknown>>;
}

/** `h2`: HTTP/2 over TLS. `h2c`: HTTP/2 without TLS. `auto`: HTTP/2 if the server chooses it. */
export type BackendProtocol = "http1" | "h2" | "h2c" | "auto";

export interface BackendEnv extends CompileEnv {
  /** Unique within the configuration, for example `route0/backend0`. */
  readonly name: string;
  /** The compiled policies of one of its `innerPolicies`. */
  scopeOf?(inner: InnerPolicies): CompiledScope;
  /** Host names from the configuration: those of the route and of its policies' URLs. */
  readonly trustedHosts: readonly string[];
  /** Every request on the route carries a checked credential that pages of other sites cannot send. */
  readonly requiresCredential: boolean;
  /** A policy of the route reads credentials, even if they are optional. */
  readonly readsCredential?: boolean;
  /** The variables of the gateway's own process, for children that may inherit some. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** TLS settings from a `backendTLS` policy. */
  readonly tls: TlsOptions | undefined;
  /** The HTTP version for the backend; `http1` if undefined. */
  readonly protocol?: BackendProtocol | undefined;
}

export function defineBackend<const Key extends string, Schema extends z.ZodType>(
  definition: BackendDefinition<Key, Schema>,
): BackendDefinition<Key, Schema> {
  return definition;
}
