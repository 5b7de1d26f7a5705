/**
 * One request and its response in flight, with everything that policies, backends and the trace know about it.
 * What policies and backends find out (claims, keys, models) goes into typed facts, never into a free bag.
 */

import { createRecordIds } from "../base/ids.ts";
import type { Linked } from "../base/linked-list.ts";
import { type BodyReservation, MemoryAccount, type MemoryBudget } from "../base/memory-budget.ts";
import type { RequestBodyStream } from "../http/body.ts";
import type { HeaderList } from "../http/headers.ts";
import type { AuditTrail } from "../observe/trace/audit-trail.ts";
import type { Mirrored } from "../observe/trace/mirror-comparison.ts";
import type { RequestSpans } from "../observe/trace/request-spans.ts";
import type { Trace } from "../observe/trace/trace.ts";
import { Attributes } from "./attributes.ts";
import type { ErrorSource, FailureCode } from "./errors.ts";
import type { Facts, McpAccess, McpFacts, ModelAccess } from "./facts.ts";
import type { CalledTool } from "./mcp-arguments.ts";
import { clientKey } from "./principal.ts";
import { clientAddress, type Source } from "./source.ts";

export interface GatewayRequest {
  method: string;
  scheme: "http" | "https";
  /** The authority: the Host header, or what a rewrite made of it. */
  host: string;
  /** Without query, canonical (`http/request-path.ts`) or rewritten: what is matched and judged is what is forwarded. */
  path: string;
  /** Without query, as received. */
  readonly rawPath: string;
  /** Without the question mark; empty if there is none. */
  query: string;
  readonly version: "1.0" | "1.1" | "2";
  headers: HeaderList;
  body: RequestBody;
}

export type RequestBody =
  | { readonly kind: "none" }
  /** Whole in memory: may be sent again. */
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  /** Still arriving: may be sent once. */
  | {
      readonly kind: "stream";
      readonly stream: RequestBodyStream;
      readonly length: number | undefined;
      taken: boolean;
    };

export const NO_BODY: RequestBody = { kind: "none" };

export interface GatewayResponse {
  status: number;
  headers: HeaderList;
  /** Who answered: the backend, or the gateway itself. */
  readonly source: "upstream" | "gateway";
  /** The whole body, only where a policy asked for it before its hook. */
  body?: Buffer;
  /** Sent instead of the body: a policy wrote its own. */
  replacement?: Buffer;
  /** See the bytes as they go out, for example to count tokens. They change nothing. */
  observers?: BodyObserver[];
}

export interface BodyObserver {
  data(chunk: Buffer): void;
  /** The body ended; `complete` is false when it broke off or the client left. Called once, before the settle hooks. */
  end(complete: boolean): void;
}

/** One limit as it stood after this request was counted. */
export interface LimitReading {
  /** The value of `x-ratelimit-limit`: the ceiling, with a window (`;w=60`) if a service said so. */
  readonly limit: string;
  readonly remaining: number;
  readonly resetSeconds: number;
  /** Remaining divided by the ceiling: 0 … 1. */
  readonly share: number;
}

/** What a limit took for a request and can give back. */
export interface ChargeTaken {
  giveBack(): void;
}

/** One policy's verdict, kept for every request so that a refusal can be explained afterwards. */
export interface Step {
  readonly phase: "gateway" | "route" | "backend";
  /** What the policy stands on inside of the backend, for example `model fast`. */
  readonly of?: string;
  readonly policy: string;
  verdict: "passed" | "answered" | "refused";
  micros: number;
}

/** Why a request was refused or failed: for the access log, the trace and `explain`. */
export interface Failure {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  readonly message: string;
  readonly detail: string | undefined;
}

/** What a policy in shadow mode would have denied. */
export interface ShadowDenial {
  readonly policy: string;
  readonly detail: string;
  /** What the same denials have in common, where the detail does not say it. */
  readonly rule?: string;
}

export interface ShadowDenialOptions {
  readonly rule?: string;
  /** The enforced policy would let limits count the request all the same. */
  readonly isCounted?: boolean;
}

export interface ExchangeStart {
  readonly id: string;
  readonly listener: string;
  readonly source: Source;
  readonly request: GatewayRequest;
  readonly startedAt: number;
  readonly startedMs: number;
  /** Where bodies that are held are charged; absent where no client sends one. */
  readonly memory?: MemoryBudget;
}

/** Where the exchange is recorded, besides its trace. */
class ExchangeRecords {
  /** Collects spans; set only for sampled requests. */
  spans: RequestSpans | undefined = undefined;
  /** Records calls; set only where `config.audit` is enabled. */
  audit: AuditTrail | undefined = undefined;
  /** Set where responses of a mirror are compared. */
  mirrored: Mirrored | undefined = undefined;
  /** A request of the web UI itself: it is not counted, logged, or kept in the history. */
  isQuiet = false;
}

/** The client's credentials. Written by authentication policies. */
class ExchangeCredentials {
  /** Header names (lower case) that an authentication policy read. They are not forwarded to backends. */
  headers: string[] | undefined = undefined;
  /** Query parameters that an authentication policy read. They are not forwarded to backends. */
  query: string[] | undefined = undefined;
  /** The credential itself, for a backend configured to receive it. Never shown in any output. */
  presented: { readonly header: string; readonly value: string } | undefined = undefined;
  /** Values of sensitive headers that later steps may remove. Outputs redact every copy of them. */
  secrets: string[] | undefined = undefined;
}

/** The authenticated client. Written by authentication policies. */
class ExchangeIdentity {
  /** The authenticated principal; undefined for an anonymous client. */
  principal: string | undefined = undefined;
  /** For a user who signed in with a browser: the origin of the pages, and the path where a POST signs out. */
  browserSession: { readonly origin: string; readonly logoutPath: string } | undefined = undefined;
  /** Set by an API key that has a list of models; without one every model is allowed. */
  modelAccess: ModelAccess | undefined = undefined;
}

/** Rate limits and budgets charged for the request. Written by limits at admission. */
class ExchangeLimits {
  /** The state of each limit after admission. Response headers report the one with the smallest share left. */
  readings: LimitReading[] | undefined = undefined;
  /** Charges to refund if a policy rejects the request. */
  charges: ChargeTaken[] | undefined = undefined;
  /** The charges that their limits settle when the tokens are counted. */
  tokenCharges: ChargeTaken[] | undefined = undefined;
}

/** Decisions of policies in shadow mode. Written by `Exchange.deniedInShadow` and by limits in shadow mode. */
class ExchangeShadow {
  /** The denials that enforcement would have caused. */
  denials: ShadowDenial[] | undefined = undefined;
  /** A policy in shadow mode denies the request before admission, so limits in shadow mode do not charge it. */
  isFree = false;
  /** Charges of limits in shadow mode, refunded if a policy in shadow mode denies the request. */
  charges: ChargeTaken[] | undefined = undefined;
  /** A shadow decision may arrive after the request has ended. */
  isPending = false;
  /** Receives a denial that arrives after the request has ended. */
  onLate: ((denial: ShadowDenial) => void) | undefined = undefined;
}

/** Facts about the MCP messages in the request. Written by MCP policies and the MCP backend. */
class ExchangeMcp {
  /** Set by an MCP authorization policy; without one everything is allowed. */
  access: McpAccess | undefined = undefined;
  /** A rule reads the messages, so the backend rejects messages that a server could interpret differently. */
  isJudged = false;
  /** A rule in shadow mode reads the messages: a batch is split into its messages, and nothing is rejected. */
  isWatched = false;
  /** The tool that the message calls. */
  calledTool: CalledTool | undefined = undefined;
  /** The facts of each message of a batch, where a rule reads them. */
  batch: readonly McpFacts[] | undefined = undefined;
}

/** When the backend was called and when its head arrived. Written by the attempt. */
class ExchangeUpstream {
  startedMs: number | undefined = undefined;
  headMs: number | undefined = undefined;
}

const nextRecordId = createRecordIds();

export class Exchange implements Linked<Exchange> {
  /** Its place among the requests in flight. */
  next: Exchange | undefined = undefined;
  previous: Exchange | undefined = undefined;
  /** The value of `x-request-id`. A client may choose it. */
  readonly id: string;
  #recordId: string | undefined = undefined;
  readonly listener: string;
  readonly source: Source;
  /** Wall clock and monotonic time of arrival. */
  readonly startedAt: number;
  readonly startedMs: number;
  /** The authority that the client asked for, before any rewrite. */
  readonly originalHost: string;
  /** The canonical path and the query that the client asked for. */
  readonly originalPath: string;
  readonly originalQuery: string;
  /** The request that the first phases see; attempts work on copies of it. */
  readonly arrived: GatewayRequest;
  #sentPairs: readonly string[] | undefined = undefined;
  request: GatewayRequest;
  response: GatewayResponse | undefined = undefined;
  route: string | undefined = undefined;
  readonly facts: Facts = {};
  trace: Trace | undefined = undefined;
  /** The `traceparent` header sent to backends for a request that is not sampled and arrived without one. */
  traceparent: string | undefined = undefined;
  readonly records = new ExchangeRecords();
  readonly steps: Step[] = [];
  failure: Failure | undefined = undefined;
  /** The response was sent or the client disconnected, so pending work has no consumer. */
  isOver = false;
  /** Why the current hook did not apply; the pipeline moves it into the trace. */
  skipped: string | undefined = undefined;
  readonly credentials = new ExchangeCredentials();
  readonly identity = new ExchangeIdentity();
  readonly limits = new ExchangeLimits();
  readonly shadow = new ExchangeShadow();
  readonly mcp = new ExchangeMcp();
  readonly upstream = new ExchangeUpstream();
  /** Whether the route's cors policy allows the request's Origin; undefined without such a policy or Origin. */
  originAllowed: boolean | undefined = undefined;
  /** Called when the backend's response head arrives, to add observers of the body. */
  observeResponse: ((response: GatewayResponse) => void) | undefined = undefined;
  /**
   * The request as it was when rules evaluated its head, for rules that evaluate its body later. Policies that
   * transform the request in between must not change a decision.
   */
  judged: { readonly judge: object; readonly request: GatewayRequest }[] | undefined = undefined;
  /** Called once, when every rule and limit, including those that read the body, has admitted the request. */
  onAdmitted: (() => void)[] | undefined = undefined;
  #attributes: Attributes | undefined = undefined;

  readonly #memory: MemoryBudget | undefined;
  #heldResponse: MemoryAccount | undefined = undefined;
  #bodyReservation: BodyReservation | undefined = undefined;
  #smallBodyBytes = 0;

  constructor(start: ExchangeStart) {
    this.id = start.id;
    this.listener = start.listener;
    this.source = start.source;
    this.arrived = start.request;
    this.request = start.request;
    this.originalHost = start.request.host;
    this.originalPath = start.request.path;
    this.originalQuery = start.request.query;
    this.startedAt = start.startedAt;
    this.startedMs = start.startedMs;
    this.#memory = start.memory;
  }

  /** For a small body that has arrived. False if there is no room without a reservation (`bodyReservation`). */
  holdSmallBody(bytes: number): boolean {
    if (this.#memory === undefined || bytes === 0) return true;
    if (!this.#memory.bodies.holdSmall(bytes)) return false;
    this.#smallBodyBytes += bytes;
    return true;
  }

  /** The memory for the body, charged to the client; undefined where none is charged. */
  bodyReservation(): BodyReservation | undefined {
    this.#bodyReservation ??= this.#memory?.bodies.open(this.client);
    return this.#bodyReservation;
  }

  /** The client that shares of limits are counted by. */
  get client(): string {
    return clientKey(this.identity.principal, this.clientAddress);
  }

  /** For a part of the response that is held back or copied, until the exchange ends. False if there is no room. */
  holdResponse(bytes: number): boolean {
    if (this.#memory === undefined) return true;
    this.#heldResponse ??= new MemoryAccount(this.#memory.responses, this.client);
    return this.#heldResponse.tryGrow(bytes);
  }

  /** A response has begun: what was made of the body to find and call the backend is not needed any more. */
  dropBodyCopies(): void {
    this.#bodyReservation?.dropCopies();
  }

  /** The exchange has ended: nothing of its bodies is held any more. */
  releaseMemory(): void {
    this.#bodyReservation?.release();
    this.#heldResponse?.close();
    if (this.#smallBodyBytes > 0) this.#memory?.bodies.releaseSmall(this.#smallBodyBytes);
    this.#smallBodyBytes = 0;
  }

  /** The address of the client: the socket's peer, or the address that trusted proxies report. */
  get clientAddress(): string {
    return clientAddress(this.source);
  }

  /** The id of its audit and access records, which a client cannot choose. Made when the first record is written. */
  get recordId(): string {
    this.#recordId ??= nextRecordId();
    return this.#recordId;
  }

  /** Somebody wants to know what goes over the wire for it. */
  get isWatched(): boolean {
    return this.trace !== undefined || this.records.spans !== undefined;
  }

  /** Before policies that may change `arrived`: what is recorded for rehearsals is what the client sent. */
  keepHeaders(): void {
    this.#sentPairs ??= this.arrived.headers.pairs.slice();
  }

  /** The header lines as the client sent them. */
  get sentPairs(): readonly string[] {
    return this.#sentPairs ?? this.arrived.headers.pairs;
  }

  /** For a hook that finds nothing to do: the trace then says so, and why. Nothing happens while nobody watches. */
  skip(reason: string): undefined {
    if (this.trace !== undefined) this.skipped = reason;
    return undefined;
  }

  /** A policy in shadow mode would have denied the request. Once per reason: attempts ask again. */
  deniedInShadow(policy: string, detail: string, { rule, isCounted = false }: ShadowDenialOptions = {}): void {
    if (!isCounted) this.#freeInShadow();
    this.shadow.denials ??= [];
    if (this.shadow.denials.some((one) => one.policy === policy && one.detail === detail)) return;
    const denial: ShadowDenial = { policy, detail, ...(rule === undefined ? {} : { rule }) };
    this.shadow.denials.push(denial);
    this.trace?.point({ type: "policyEvent", kind: "shadowDenied", details: { policy, reason: detail } }, "warn");
    this.shadow.onLate?.(denial);
  }

  #freeInShadow(): void {
    this.shadow.isFree = true;
    const charges = this.shadow.charges;
    this.shadow.charges = undefined;
    if (charges) for (const charge of charges) charge.giveBack();
  }

  /** An authentication policy knows the client. Where several do, only all of them together are the same client. */
  authenticated(principal: string): void {
    this.identity.principal =
      this.identity.principal === undefined ? principal : `${this.identity.principal}\n${principal}`;
  }

  /** What CEL may read. Built on first use: most requests never need it. */
  get attributes(): Attributes {
    this.#attributes ??= new Attributes(this);
    return this.#attributes;
  }
}

/** The request of one attempt: changes to it stay with the attempt. */
export function forkRequest(request: GatewayRequest): GatewayRequest {
  return {
    method: request.method,
    scheme: request.scheme,
    host: request.host,
    path: request.path,
    rawPath: request.rawPath,
    query: request.query,
    version: request.version,
    headers: request.headers.clone(),
    body: request.body,
  };
}
