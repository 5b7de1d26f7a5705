/**
 * One request and its response in flight, in grouped parts. Attributes that policies and backends determine (claims,
 * keys, models) are typed and in `facts`, where CEL reads them.
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
  /** The authority: the Host header, or the host that a rewrite set. */
  host: string;
  /** Without query, canonical (`http/request-path.ts`) or rewritten. Routes and rules read the path that is forwarded. */
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
  /** The whole body in memory, which can be sent again. */
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  /** A body that is still arriving and can be sent only once. */
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
  /** The source of the response: the backend, or the gateway itself. */
  readonly source: "upstream" | "gateway";
  /** The whole body, if a policy requires it (`Hooks.reads`). */
  body?: Buffer;
  /** A body from a policy, sent instead of the backend's. */
  replacement?: Buffer;
  /** Observers of the bytes sent, for example to count tokens. They must not change them. */
  observers?: BodyObserver[];
}

export interface BodyObserver {
  data(chunk: Buffer): void;
  /** The body ended; `complete` is false when it broke off or the client left. Called once, before the settle hooks. */
  end(complete: boolean): void;
}

/** The state of one limit after this request was counted. */
export interface LimitReading {
  /** The value of `x-ratelimit-limit`: the limit, with a window (`;w=60`) if a rate limit service set one. */
  readonly limit: string;
  readonly remaining: number;
  readonly resetSeconds: number;
  /** Remaining divided by the limit: 0 … 1. */
  readonly share: number;
}

/** A charge of a limit that can be refunded. */
export interface ChargeTaken {
  giveBack(): void;
}

/** The decision of one policy, kept for every request to explain a rejection afterwards. */
export interface Step {
  readonly phase: "gateway" | "route" | "backend";
  /** What the policy is attached to inside the backend, for example `model fast`. */
  readonly of?: string;
  readonly policy: string;
  verdict: "passed" | "answered" | "refused";
  micros: number;
}

/** Why a request was rejected or failed, for the access log, the trace and `explain`. */
export interface Failure {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  readonly message: string;
  readonly detail: string | undefined;
}

/** A denial by a policy in shadow mode. */
export interface ShadowDenial {
  readonly policy: string;
  readonly detail: string;
  /** Groups equal denials in the report, if the detail differs between them. */
  readonly rule?: string;
}

export interface ShadowDenialOptions {
  readonly rule?: string;
  /** Limits would charge the request even if the policy were enforced. */
  readonly isCounted?: boolean;
}

export interface ExchangeStart {
  readonly id: string;
  readonly listener: string;
  readonly source: Source;
  readonly request: GatewayRequest;
  readonly startedAt: number;
  readonly startedMs: number;
  /** The account for buffered bodies; undefined for requests without a client. */
  readonly memory?: MemoryBudget;
}

/** The recorders of the exchange, in addition to its trace. */
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
  /**
   * True if a policy in shadow mode would have denied the request before admission. Limits in shadow mode then do not
   * charge it.
   */
  isFree = false;
  /** Charges of limits in shadow mode, refunded if a policy in shadow mode denies the request. */
  charges: ChargeTaken[] | undefined = undefined;
  /** A shadow decision may arrive after the request has ended. */
  isPending = false;
  /** Receives a denial that arrives after the request has ended. */
  onLate: ((denial: ShadowDenial) => void) | undefined = undefined;
}

/** The MCP messages in the request. Written by MCP policies and the MCP backend. */
class ExchangeMcp {
  /** Set by an MCP authorization policy; without one everything is allowed. */
  access: McpAccess | undefined = undefined;
  /** A rule reads the messages, so the backend rejects messages that a server could interpret differently. */
  isJudged = false;
  /** A rule in shadow mode reads the messages: a batch is split into its messages, and nothing is rejected. */
  isWatched = false;
  /** The tool that the message calls. */
  calledTool: CalledTool | undefined = undefined;
  /** The attributes of each message of a batch, if a rule reads them. */
  batch: readonly McpFacts[] | undefined = undefined;
}

/** When the backend was called and when its head arrived. Written by the attempt. */
class ExchangeUpstream {
  startedMs: number | undefined = undefined;
  headMs: number | undefined = undefined;
}

const nextRecordId = createRecordIds();

export class Exchange implements Linked<Exchange> {
  /** The position in the list of requests in flight. */
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
  /** The authority that the client requested, before any rewrite. */
  readonly originalHost: string;
  /** The canonical path and the query that the client requested. */
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

  /** Charges a small body that has arrived. False if it needs a reservation (`bodyReservation`). */
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

  /** The client to which memory and connection shares are charged. */
  get client(): string {
    return clientKey(this.identity.principal, this.clientAddress);
  }

  /** Charges a held or copied part of the response until the exchange ends. False if the budget is exhausted. */
  holdResponse(bytes: number): boolean {
    if (this.#memory === undefined) return true;
    this.#heldResponse ??= new MemoryAccount(this.#memory.streams, this.client);
    return this.#heldResponse.tryGrow(bytes);
  }

  /** Releases copies of the body that were needed only to choose and call the backend. Called with the response head. */
  dropBodyCopies(): void {
    this.#bodyReservation?.dropCopies();
  }

  /** Releases all memory charged for bodies. Called when the exchange ends. */
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

  /** The id of the audit and access records, created on first use. Clients cannot choose it. */
  get recordId(): string {
    this.#recordId ??= nextRecordId();
    return this.#recordId;
  }

  /** The request is traced or sampled, so wire-level events are reported. */
  get isWatched(): boolean {
    return this.trace !== undefined || this.records.spans !== undefined;
  }

  /** Keeps the request as the client sent it, for rehearsals. Called before policies that may change `arrived`. */
  keepHeaders(): void {
    this.#sentPairs ??= this.arrived.headers.pairs.slice();
  }

  /** The header lines as the client sent them. */
  get sentPairs(): readonly string[] {
    return this.#sentPairs ?? this.arrived.headers.pairs;
  }

  /** Records in the trace why a hook did not apply. Does nothing for requests that are not traced. */
  skip(reason: string): undefined {
    if (this.trace !== undefined) this.skipped = reason;
    return undefined;
  }

  /** Records a denial by a policy in shadow mode, once per reason, because each attempt evaluates the policies again. */
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

  /** Adds a principal from an authentication policy. With several, all of them together identify the client. */
  authenticated(principal: string): void {
    this.identity.principal =
      this.identity.principal === undefined ? principal : `${this.identity.principal}\n${principal}`;
  }

  /** The attributes for CEL, built on first use because most requests do not need them. */
  get attributes(): Attributes {
    this.#attributes ??= new Attributes(this);
    return this.#attributes;
  }
}

/** Copies the request for one attempt, so that changes do not affect other attempts. */
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
