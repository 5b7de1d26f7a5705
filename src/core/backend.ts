/**
 * Defines the contract of a backend, which produces the response: a plain HTTP server, MCP servers, an LLM provider, or
 * the gateway itself.
 */
import type { Duplex } from "node:stream";
import type { z } from "zod";
import type { HeaderList } from "../http/headers.ts";
import type { HttpResponseReceiver, TlsOptions } from "../http/http-client.ts";
import type { ErrorCode, ErrorSource, FailureCode, GatewayError } from "./errors.ts";
import type { Exchange } from "./exchange.ts";
import type { CompiledScope, CompileEnv, ExtraMatch, PathMatch, Protection, SharedState } from "./policy.ts";
import type { Reply } from "./reply.ts";
import type { BackendAttributes, LlmAttributes } from "./request-attributes.ts";
import type { ServerGroup } from "./session-persistence.ts";
import type { AttemptFailure, Targets } from "./targets.ts";
import type { WireTap } from "./wire.ts";

export interface ResponseReceiver extends HttpResponseReceiver, WireTap {
  end(trailers?: readonly string[]): void;
  /**
   * Moves on to the backend's next target, before `head`. Returns false if no target is left or the attempt is over.
   */
  next<Failure extends AttemptFailure>(targets: Targets<Failure>, failure: Failure): boolean;
  /** Reports a failure in the backend's own protocol to the log and the records, before or after `head`. */
  problem(problem: BackendProblem): void;
  /** Ends the attempt. Before `head`, the request may be retried. */
  fail(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface BackendProblem {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  /** The pipeline truncates this string and redacts the client's credentials in it. */
  readonly reason: string;
  /** The code is sent in `x-gateway-error` if the gateway itself wrote the response. It has no effect after `head`. */
  readonly said?: ErrorCode;
}

export interface BackendRun {
  abort(): void;
  resume(): void;
}

export interface Backend {
  readonly attributes: BackendAttributes;
  /** Limits the wait for the response head unless a timeout policy is configured. */
  readonly defaultTimeoutMs: number;
  readonly routing?: BackendRouting;
  /**
   * True if `prepare` parses the body. Rules about LLM requests then read the backend's attributes, and otherwise the
   * pipeline inspects the body for them.
   */
  readonly parsesBody?: true;
  /**
   * Runs for each attempt, before the rules that read the body. A Reply ends the request phase with this response, and
   * a thrown GatewayError rejects the request.
   */
  prepare(exchange: Exchange, needs: PrepareNeeds): Prepared | Promise<Prepared>;
  /** Renders an error in the protocol of this backend's clients. Returns undefined for the default format. */
  errorReply?(exchange: Exchange, error: GatewayError): Reply | undefined;
  readonly mcp?: McpCapability;
  /** Describes the backend for `/config_dump`, without secrets. */
  describe(): Record<string, unknown>;
}

export interface PrepareNeeds {
  /** True if a rule or a limit key reads the requested model. */
  readonly model: boolean;
  /** True if a policy checks or changes the bodies of LLM calls. */
  readonly call: boolean;
  /** Set in a dry run of a recorded request, which has no body. An LLM backend takes the call from these attributes. */
  readonly recorded?: { readonly llm: LlmAttributes | undefined };
}

export type Prepared = PreparedCall | Reply;

/** A request that its backend has read. */
export interface PreparedCall {
  /**
   * Returns the policies inside the backend that apply to this request (for example those of the requested model),
   * outermost first. They run after all outer policies have accepted the request.
   */
  scopes?(): readonly CompiledScope[];
  call(receiver: ResponseReceiver): BackendRun;
}

/** How a route chooses the backend and its servers. */
export interface BackendRouting {
  readonly health?: { readonly isEjected: boolean };
  /** True if the request goes to the endpoint that an endpoint picker selected. */
  readonly followsPicker?: true;
  /** Names the servers for session persistence. */
  readonly servers?: ServerGroup;
  /** True if the backend handles the method CONNECT. */
  readonly acceptsConnect?: true;
}

/** What only MCP backends have. */
export interface McpCapability {
  /** Ends endless streams at shutdown. */
  drain(): void;
  /** Returns true while calls are suspended, for example because they wait for a retry of their client. */
  hasSuspendedCalls(): boolean;
  /**
   * Lists the current tools of the servers for the admin interface. The call may open connections and start processes.
   */
  inspect(only?: ReadonlySet<string>): Promise<readonly InspectedTarget[]>;
  /** Lists the tools that sessions withheld from clients. The call opens no connections and starts no processes. */
  withheld(): readonly InspectedTarget[];
  /** The absolute path of the lock file. It is undefined if there is none that the gateway may write. */
  readonly lockFile?: string;
  readonly accounts?: ConnectedAccounts;
  /**
   * Ends the client session with this short id if exactly one session has it. Returns the number of sessions with the
   * id.
   */
  endSession(shown: string): number;
}

export interface InspectedTool {
  readonly name: string;
  /** Clients see the tool under this name. It is null if the tool is hidden or withheld. */
  readonly shown: string | null;
  readonly state: "accepted" | "changed" | "new";
  readonly definition: Readonly<Record<string, unknown>>;
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

export interface InspectedTarget {
  readonly target: string;
  readonly tools: readonly InspectedTool[];
  readonly error?: string;
}

export interface InspectedBackend {
  readonly backend: string;
  readonly targets: readonly InspectedTarget[];
}

/**
 * Manages connected accounts without exposing their tokens. `test` and `revoke` resolve with undefined for an unknown
 * id.
 */
export interface ConnectedAccounts {
  list(): Promise<readonly ({ readonly id: string } & object)[]>;
  /** Refreshes the account's token if necessary and checks whether the server accepts it. */
  test(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
  revoke(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
}

export interface BackendDefinition<Key extends string = string, Schema extends z.ZodType = z.ZodType> {
  /** This key under `backends[]` selects the kind of backend. */
  readonly key: Key;
  readonly doc: string;
  readonly schema: Schema;
  /**
   * Returns the schema of a backend kind that accepts policies inside it. `policies` is the schema of those policies.
   */
  schemaWith?(policies: z.ZodType<Readonly<Record<string, unknown>>>): z.ZodType;
  innerPolicies?(config: z.output<Schema>): readonly InnerPolicies[];
  /** A route that has no `matches` and only backends of this kind uses these paths. */
  readonly defaultPaths?: readonly PathMatch[];
  /** A top-level section with this name is a shorthand for a gateway with its own port, one route, and one backend. */
  readonly section?: { readonly name: string; readonly defaultPort: number; readonly paths?: readonly PathMatch[] };
  /**
   * Returns additional paths for a route whose only backend has this configuration. They are not used if a policy of
   * the route or its gateway reads credentials.
   */
  extraMatches?(config: z.output<Schema>, paths: readonly string[]): readonly ExtraMatch[];
  /** Anything but `none` for a backend that guards its servers with this configuration, apart from its policies. */
  protection(config: z.output<Schema>): Protection;
  /** Returns the state that several gateways must share, apart from that of its policies. */
  sharedState?(written: Readonly<Record<string, unknown>>): SharedState | undefined;
  compile(config: z.output<Schema>, env: BackendEnv): Backend;
}

export interface InnerPolicies {
  readonly name: string;
  /** The path of `policies` is relative to the backend's configuration. */
  readonly path: readonly (string | number)[];
  readonly policies: Readonly<Record<string, unknown>>;
}

/** `h2` is HTTP/2 over TLS, `h2c` is HTTP/2 without TLS, and `auto` negotiates the version with ALPN. */
export type BackendProtocol = "http1" | "h2" | "h2c" | "auto";

export interface BackendEnv extends CompileEnv {
  /** The name is unique within the configuration, for example `route0/backend0`. */
  readonly name: string;
  scopeOf?(inner: InnerPolicies): CompiledScope;
  readonly trustedHosts: readonly string[];
  /** True if every request on the route carries a verified credential that pages of other sites cannot send. */
  readonly requiresCredential: boolean;
  /** True if a policy of the route reads credentials, even if they are optional. */
  readonly readsCredential?: boolean;
  readonly tls: TlsOptions | undefined;
  readonly protocol?: BackendProtocol | undefined;
}

export function defineBackend<const Key extends string, Schema extends z.ZodType>(
  definition: BackendDefinition<Key, Schema>,
): BackendDefinition<Key, Schema> {
  return definition;
}
