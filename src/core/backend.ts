/**
 * What answers a request: a plain HTTP server, MCP servers, an LLM provider, or something inside the gateway.
 * A backend does the only I/O of the pipeline and reports through callbacks; bodies pass through, they are not kept.
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
 * Receives the response of a backend for one attempt. The contract is that of `HttpResponseReceiver`, so a connection can call it
 * directly. The pipeline's implementation (`pipeline/phases/attempt.ts`) additionally ignores calls after `end`, `fail` or
 * `BackendRun.abort`, accepts calls before `Backend.call` has returned, and never throws.
 */
export interface ResponseReceiver extends HttpResponseReceiver, WireTap {
  end(trailers?: readonly string[]): void;
  /** Reports that the response carries a failure of the backend's own protocol, for the log and the records. Before or after `head`. */
  problem(problem: BackendProblem): void;
  /** Ends the attempt. Before `head` it becomes an error response; after `head` the client's connection is cut. */
  fail(error: unknown): void;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface BackendProblem {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  /** For the log and the records, where it is cut and stripped of the client's credentials. */
  readonly reason: string;
  /** The answer is the gateway's own: `x-gateway-error` names this. Only before `head`. */
  readonly said?: ErrorCode;
}

/** A call in progress. */
export interface BackendRun {
  abort(): void;
  resume(): void;
  /** Where several targets may be asked in turn: how many are left after the one that is asked. */
  readonly spareTargets?: number;
  /** The target that is asked took too long: asks the next. False if there is none, or one answers already. */
  tryNext?(reason: string): boolean;
}

export interface Backend {
  readonly facts: BackendFacts;
  /** Whether it can be reached: where a route has several, one that cannot is left for a while. */
  readonly health?: { readonly isEjected: boolean };
  /** Until the response head, where no timeout policy says otherwise. */
  readonly defaultTimeoutMs: number;
  /**
   * Before the call: the place to read the request's body and to choose a target. May answer or refuse. `needsModel`: a
   * rule or a key asks which model is called.
   */
  prepare?(exchange: Exchange, needsModel: boolean): HookResult;
  /** The same for a recorded LLM request, whose body is not known: what was recorded of it stands for it. */
  recall?(exchange: Exchange, recorded: LlmFacts): void;
  call(exchange: Exchange, call: ResponseReceiver): BackendRun;
  /** A refusal of the gateway as this backend's clients understand it; undefined: as everywhere. */
  errorReply?(exchange: Exchange, error: GatewayError): Reply | undefined;
  /**
   * Policies inside of the backend that apply to this request, for example those of the model that it asks for; outermost
   * first. Asked for each attempt, after the rules and limits of all other scopes agreed. Undefined: there are none at all.
   */
  inner?(exchange: Exchange): readonly CompiledScope[];
  /** The gateway is about to stop: streams that would stay open for ever end now, calls in flight go on. */
  drain?(): void;
  /** What the servers behind it offer now, for the admin interface: opens connections and starts processes. */
  inspect?(only?: ReadonlySet<string>): Promise<readonly InspectedTarget[]>;
  /** What of it clients did not get, as their sessions saw it: opens and starts nothing. */
  withheld?(): readonly InspectedTarget[];
  /** The file that says what of it was accepted, with its whole path; undefined where there is none, or none to write. */
  readonly lockFile?: string;
  /** Accounts that users connected at the servers behind it, for the admin interface. */
  readonly accounts?: ConnectedAccounts;
  /** Ends the client session that is shown under this name; answers how many have it, and ends none of several. */
  endSession?(shown: string): number;
  /** For `/config_dump`; without secrets. */
  describe(): Record<string, unknown>;
}

/** What a server offers, asked for outside of any session; compared with the lock file as it was loaded. */
export interface InspectedTool {
  readonly name: string;
  readonly state: "accepted" | "changed" | "new";
  /** The server's own, without what is not pinned. */
  readonly definition: Readonly<Record<string, unknown>>;
  readonly difference: readonly string[];
  readonly suspicious: readonly string[];
}

export interface InspectedTarget {
  readonly target: string;
  readonly tools: readonly InspectedTool[];
  /** Why the server could not be asked; the tools are then those that sessions saw and clients did not get. */
  readonly error?: string;
}

export interface InspectedBackend {
  readonly backend: string;
  readonly targets: readonly InspectedTarget[];
}

/** Without any token. `id` names one in the other two, which answer undefined if there is none. */
export interface ConnectedAccounts {
  list(): Promise<readonly ({ readonly id: string } & object)[]>;
  /** Asks the server whether it takes the account's token, which is renewed if need be. */
  test(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
  /** Forgets the tokens and asks the server to do the same. */
  revoke(id: string): Promise<{ readonly ok: boolean; readonly reason: string } | undefined>;
}

export interface BackendDefinition<Key extends string = string, Schema extends z.ZodType = z.ZodType> {
  /** The key under `backends[]` that chooses it. */
  readonly key: Key;
  readonly doc: string;
  readonly schema: Schema;
  /** The same with policies inside of it, where it has places for them: `policies` is what may stand there. */
  schemaWith?(policies: z.ZodType<Readonly<Record<string, unknown>>>): z.ZodType;
  /** The policies that stand inside of it. */
  innerPolicies?(config: z.output<Schema>): readonly InnerPolicies[];
  /** Where a route of only such backends answers when it has no `matches`. */
  readonly defaultPaths?: readonly PathMatch[];
  /** A top-level section with a port of its own: a gateway with one route to one such backend. */
  readonly section?: { readonly name: string; readonly defaultPort: number; readonly paths?: readonly PathMatch[] };
  /** Paths that it answers besides those of its route, on a route of its own without authentication. */
  extraMatches?(config: z.output<Schema>, paths: readonly string[]): readonly ExtraMatch[];
  compile(config: z.output<Schema>, env: BackendEnv): Backend;
}

export interface InnerPolicies {
  /** As in `model fast`. */
  readonly name: string;
  /** Where `policies` stands below the backend's configuration. */
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
  /** Host names that the configuration itself vouches for: those of the route and of its policies' URLs. */
  readonly trustedHosts: readonly string[];
  /** Every request on the route carried a credential that was checked: pages of other sites cannot send one. */
  readonly requiresCredential: boolean;
  /** A policy of the route reads credentials, also where they are optional. */
  readonly readsCredential?: boolean;
  /** The variables of the gateway's own process, for children that may inherit some. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** How the backend's TLS is set up, if a `backendTLS` policy says so. */
  readonly tls: TlsOptions | undefined;
  /** Which HTTP is spoken to it; `http1` if undefined. */
  readonly protocol?: BackendProtocol | undefined;
}

export function defineBackend<const Key extends string, Schema extends z.ZodType>(
  definition: BackendDefinition<Key, Schema>,
): BackendDefinition<Key, Schema> {
  return definition;
}
