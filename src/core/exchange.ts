/**
 * Represents one request and its response in flight. Policies and backends write typed attributes (claims, keys,
 * models) to `attributes`, where CEL expressions read them.
 */

import { createRecordIds } from "../base/ids.ts";
import type { Linked } from "../base/linked-list.ts";
import { type BodyReservation, MemoryAccount, type MemoryBudget } from "../base/memory-budget.ts";
import type { RequestBodyStream } from "../http/body.ts";
import type { HeaderList } from "../http/headers.ts";
import type { AuditTrail, Mirrored, RequestSpans } from "../record/trace/live-records.ts";
import type { RecordedAttempt, RecordedRule, RecordedStep } from "../record/trace/record.ts";
import type { Trace } from "../record/trace/trace.ts";
import { CelAttributes } from "./cel-attributes.ts";
import type { ErrorSource, FailureCode, GatewayError } from "./errors.ts";
import type { CalledTool } from "./mcp-arguments.ts";
import type { McpGuardrails } from "./mcp-guardrails.ts";
import { clientKey } from "./principal.ts";
import type { Reply } from "./reply.ts";
import type { McpAccess, McpAttributes, ModelAccess, RequestAttributes } from "./request-attributes.ts";
import type { SignedRequest } from "./signed-request.ts";
import { clientAddress, type Source } from "./source.ts";

export interface GatewayRequest {
  method: string;
  scheme: "http" | "https";
  /** True if a client of a forward proxy names an `https` URL, so that the server must be reached with TLS. */
  readonly namesHttps: boolean;
  host: string;
  /** The path excludes the query and is canonical, or rewritten by a policy. */
  path: string;
  readonly rawPath: string;
  /** The query excludes the question mark and is empty if the URL has none. */
  query: string;
  readonly version: "1.0" | "1.1" | "2";
  headers: HeaderList;
  body: RequestBody;
  /** Backends over HTTP call this function right before they send the request. The body must be buffered. */
  sign?: (request: SignedRequest) => Promise<void>;
}

export type RequestBody =
  | { readonly kind: "none" }
  /** A buffered body can be sent more than once. */
  | { readonly kind: "bytes"; readonly bytes: Buffer }
  /** A streaming body can be sent only once. */
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
  readonly source: "upstream" | "gateway";
  body?: Buffer;
  /** A policy can set this body to replace the backend's. */
  replacement?: Buffer;
  /** Filters change the backend's body while it is sent, in this order. */
  filters?: BodyFilter[];
  /** Observers read the bytes that are sent, for example to count tokens. They must not modify the buffers. */
  observers?: BodyObserver[];
}

/** A rejected promise ends the request. The next call is made when the promise of the previous one is resolved. */
export interface BodyFilter {
  /** Called once, before the other calls. Bytes that are passed to `emit` come before the results of later calls. */
  start?(emit: (bytes: Buffer) => void): void;
  data(chunk: Buffer): Promise<Buffer>;
  /** Returns the last bytes of the body. */
  end(): Promise<Buffer>;
}

export interface BodyObserver {
  data(chunk: Buffer): void;
  /**
   * Called once, before the settle hooks. `complete` is false if the body was truncated or the client disconnected.
   */
  end(complete: boolean): void;
}

export interface LimitReading {
  /** Describes the limit, for example `3 requests per second`. */
  readonly rule: string;
  /** A rate limit service may add a window (`;w=60`). */
  readonly limit: string;
  readonly remaining: number;
  readonly resetSeconds: number;
  /** The share is `remaining` divided by the limit, from 0 to 1. */
  readonly share: number;
}

export interface BudgetReading {
  /** The share is the remaining amount divided by the limit, from 0 to 1. */
  readonly share: number;
  readonly headers: Readonly<Record<string, string>>;
}

export interface SpentAmount {
  /** Names the counter by its key in the store. */
  readonly account: string;
  /** The unit is tokens or billionths of a dollar. */
  readonly amount: number;
}

export interface ChargeTaken {
  giveBack(): void;
}

export type Step = { -readonly [Name in keyof RecordedStep]: RecordedStep[Name] };

export interface Failure {
  readonly code: FailureCode;
  readonly source: ErrorSource;
  readonly message: string;
  readonly detail: string | undefined;
}

export interface ShadowDenial {
  readonly policy: string;
  readonly detail: string;
  readonly rule?: string;
}

export interface ShadowDenialOptions {
  readonly rule?: string;
  /** True if limits would still charge the request if the policy were enforced. */
  readonly isCounted?: boolean;
}

export interface ExchangeStart {
  readonly id: string;
  readonly listener: string;
  readonly source: Source;
  readonly request: GatewayRequest;
  readonly startedAt: number;
  readonly startedMs: number;
  /** Buffered bodies are charged to this budget. */
  readonly memory?: MemoryBudget;
}

/** An MCP backend may call many servers for one request. Beyond this number, attempts are only counted. */
const MAX_RECORDED = 64;
const NONE: readonly Attempt[] = [];

export class Attempt {
  /** The address of the server, or a name such as `stdio:files` or `internal:cache`. */
  readonly target: string;
  /** The LLM provider and the model that it was asked for. */
  readonly provider: string | undefined;
  readonly model: string | undefined;
  /** Times are monotonic. */
  readonly startedMs: number;
  /** When the response head, the MCP result, or the failure arrived. */
  resultMs: number | undefined = undefined;
  status: number | undefined = undefined;
  error: string | undefined = undefined;
  /** Explains why another attempt replaced this one. */
  retryReason: string | undefined = undefined;
  /** Only attempts of a sampled request have a span. */
  spanId: string | undefined = undefined;
  /** True if the backend reports the response itself, because the client receives a different head. */
  isReported = false;

  constructor(target: string, startedMs: number, served: ServedModel | undefined) {
    this.target = target;
    this.startedMs = startedMs;
    this.provider = served?.provider;
    this.model = served?.model;
  }

  get hasResult(): boolean {
    return this.resultMs !== undefined;
  }
}

export interface ServedModel {
  readonly provider: string;
  readonly model: string | undefined;
}

export class Attempts {
  #list: Attempt[] | undefined = undefined;
  leftOut = 0;
  /** The last attempt of the current call of a backend. */
  last: Attempt | undefined = undefined;
  /** The attempts of the current call whose results the backend reports, until it reports them. */
  #awaited: Attempt[] | undefined = undefined;

  add(attempt: Attempt, isAwaited: boolean): void {
    this.last = attempt;
    if (isAwaited) {
      this.#awaited ??= [];
      this.#awaited.push(attempt);
    }
    // An array for one element is much smaller than one that grew.
    if (this.#list === undefined) this.#list = [attempt];
    else if (this.#list.length < MAX_RECORDED) this.#list.push(attempt);
    else this.leftOut += 1;
  }

  /** The oldest attempt is first. */
  get list(): readonly Attempt[] {
    return this.#list ?? NONE;
  }

  get areAwaited(): boolean {
    return this.#awaited !== undefined && this.#awaited.length > 0;
  }

  /** Returns the oldest awaited attempt for this target, which is no longer awaited then. */
  takeAwaited(target: string | undefined): Attempt | undefined {
    const at = this.#awaited?.findIndex((one) => one.target === target) ?? -1;
    return at < 0 ? undefined : this.#awaited?.splice(at, 1)[0];
  }

  /** Starts the next call of a backend. Results of earlier calls are not reported. */
  startCall(): void {
    this.last = undefined;
    this.#awaited = undefined;
  }
}

export function describeAttempt(attempt: Attempt): RecordedAttempt {
  const { target, provider, model, status, error, startedMs, resultMs, retryReason } = attempt;
  return {
    target,
    ...(provider === undefined ? {} : { provider }),
    ...(model === undefined ? {} : { model }),
    status: status ?? null,
    ...(error === undefined ? {} : { error }),
    durationMs: resultMs === undefined ? null : Math.round((resultMs - startedMs) * 1000) / 1000,
    ...(retryReason === undefined ? {} : { retryReason }),
  };
}

class ExchangeRecords {
  /** Only sampled requests have spans. */
  spans: RequestSpans | undefined = undefined;
  /** The trail exists only if `config.audit` is enabled. */
  audit: AuditTrail | undefined = undefined;
  /** Only routes that compare the responses of a mirror have this record. */
  mirrored: Mirrored | undefined = undefined;
  /** True for a request of the web UI that is not recorded. */
  isQuiet = false;
  /** Called when the backend's response head arrives, if a record contains the text of the response. */
  watchResponse: ((response: GatewayResponse) => void) | undefined = undefined;
}

class ExchangeCredentials {
  /** These lowercase headers are removed before a backend is called. */
  headers: string[] | undefined = undefined;
  /** These query parameters are removed before a backend is called. */
  query: string[] | undefined = undefined;
  /** These cookies are removed before a backend is called. */
  cookies: string[] | undefined = undefined;
  /** A backend can be configured to receive this credential. */
  presented: { readonly header: string; readonly value: string } | undefined = undefined;
  /** Outputs redact copies of these header values, even after a policy has removed the headers. */
  secrets: string[] | undefined = undefined;
}

class ExchangeIdentity {
  principal: string | undefined = undefined;
  /** A user who signed in with a browser has a session. A POST to `logoutPath` signs the user out. */
  browserSession: { readonly origin: string; readonly logoutPath: string } | undefined = undefined;
  /** An API key with a list of models sets this field. If it is undefined, every model is allowed. */
  modelAccess: ModelAccess | undefined = undefined;
}

class ExchangeLimits {
  readings: LimitReading[] | undefined = undefined;
  /** These charges are refunded if a policy rejects the request. */
  charges: ChargeTaken[] | undefined = undefined;
  /** The limits settle these charges when the tokens have been counted. */
  tokenCharges: ChargeTaken[] | undefined = undefined;
  /** The budgets settle these charges when the cost is known. */
  budgetCharges: ChargeTaken[] | undefined = undefined;
  /** Several scopes can add readings. The response headers show the reading with the smallest remaining share. */
  budgetReadings: BudgetReading[] | undefined = undefined;
  spent: SpentAmount[] | undefined = undefined;
}

class ExchangeShadow {
  denials: ShadowDenial[] | undefined = undefined;
  /**
   * True if a policy in shadow mode would have denied the request before admission, so limits in shadow mode do not
   * charge it.
   */
  isFree = false;
  /** These charges of limits in shadow mode are refunded if a policy in shadow mode denies the request. */
  charges: ChargeTaken[] | undefined = undefined;
  /** True if a shadow decision may still arrive after the request has ended. */
  isPending = false;
  onLate: ((denial: ShadowDenial) => void) | undefined = undefined;
}

class ExchangeMcp {
  /** MCP authorization policies set this field. If it is undefined, everything is allowed. */
  access: McpAccess | undefined = undefined;
  /** Guardrail policies set this field. If it is undefined, no processor gets the messages. */
  guardrails: McpGuardrails | undefined = undefined;
  /** True if the body is a batch, whose messages share the attributes of the request. */
  isBatch = false;
  /** True if a rule reads the messages. */
  isJudged = false;
  /**
   * True if a rule in shadow mode reads the messages, so the attributes of every message in a batch are kept.
   */
  isWatched = false;
  calledTool: CalledTool | undefined = undefined;
  /** The attributes of all messages of a batch are kept only if a rule reads them. */
  batch: readonly McpAttributes[] | undefined = undefined;
}

class ExchangeUpstream {
  /** When the current attempt started, or its first MCP message was sent. */
  startedMs: number | undefined = undefined;
  /** When the response head or the last MCP result arrived. */
  headMs: number | undefined = undefined;
  /** False if the backend responded without a request to a server, for example because a rule denied the MCP call. */
  isCalled = false;
  /** The endpoints that an endpoint picker selected for the current attempt, in order of preference. */
  picked: readonly string[] | undefined = undefined;
  /** True if the backend of the current attempt can use another endpoint. */
  hasOtherEndpoints = false;
  /** The endpoint of the client's session. A `service` backend uses another one if it is ejected. */
  preferred: string | undefined = undefined;
  /** The index of the chosen backend in the route, if the route has session persistence. */
  backendIndex: number | undefined = undefined;
  /** The endpoint of a `service` backend that got the request last. */
  endpoint: string | undefined = undefined;
  #delayedSnapshots: (() => void)[] | undefined = undefined;

  /** Delays the snapshots of a response whose head is sent before the MCP servers respond (spec 6 has their order). */
  delaySnapshots(): void {
    this.#delayedSnapshots ??= [];
  }

  emitSnapshot(emit: () => void): void {
    if (this.#delayedSnapshots === undefined) emit();
    else this.#delayedSnapshots.push(emit);
  }

  releaseSnapshots(): void {
    const delayed = this.#delayedSnapshots;
    this.#delayedSnapshots = undefined;
    if (delayed !== undefined) for (const emit of delayed) emit();
  }
}

/**
 * Identifies what one policy, backend, or module keeps of one request. Only code that has the key can read or change the
 * value, so create it where the configuration is compiled or in the module that owns the value.
 */
export class StateKey<Value> {
  declare protected readonly value: Value;
}

const nextRecordId = createRecordIds();

export class Exchange implements Linked<Exchange> {
  /** The list of requests in flight links exchanges through these fields. */
  next: Exchange | undefined = undefined;
  previous: Exchange | undefined = undefined;
  /** The client can choose this value of `x-request-id`. */
  readonly id: string;
  #recordId: string | undefined = undefined;
  readonly listener: string;
  readonly source: Source;
  /** `startedAt` is Unix time in milliseconds, and `startedMs` is monotonic. */
  readonly startedAt: number;
  readonly startedMs: number;
  readonly originalHost: string;
  readonly originalPath: string;
  readonly originalQuery: string;
  readonly arrived: GatewayRequest;
  #sentPairs: readonly string[] | undefined = undefined;
  request: GatewayRequest;
  response: GatewayResponse | undefined = undefined;
  route: string | undefined = undefined;
  readonly attributes: RequestAttributes = {};
  trace: Trace | undefined = undefined;
  traceparent: string | undefined = undefined;
  readonly records = new ExchangeRecords();
  readonly steps: Step[] = [];
  failure: Failure | undefined = undefined;
  /** Names the last rule that decided about the request or an item. */
  decidedBy: { readonly policy: string; readonly rule: string | undefined } | undefined = undefined;
  /** The rules of the policy that rejected the request. */
  checkedRules: readonly RecordedRule[] | undefined = undefined;
  /**
   * True if the response has been sent or the client has disconnected, so the results of pending work are discarded.
   */
  isOver = false;
  /** Explains why the current hook did not apply. */
  skipped: string | undefined = undefined;
  readonly credentials = new ExchangeCredentials();
  readonly identity = new ExchangeIdentity();
  readonly limits = new ExchangeLimits();
  readonly shadow = new ExchangeShadow();
  readonly mcp = new ExchangeMcp();
  /** The parsed body of an LLM request, only while `ai.transformations` are evaluated. */
  llmRequest: object | undefined = undefined;
  readonly upstream = new ExchangeUpstream();
  readonly attempts = new Attempts();
  /** True if a CORS policy allows the Origin header. The value is undefined if the policy or the header is missing. */
  originAllowed: boolean | undefined = undefined;
  /** Called when the backend's response head arrives, to add observers of the body. */
  observeResponse: ((response: GatewayResponse) => void) | undefined = undefined;
  /** Called once all rules and limits, including those that read the body, have admitted the request. */
  onAdmitted: (() => void)[] | undefined = undefined;
  /** The pipeline, which can end the request while its body is forwarded, and asks the client for the body. */
  interrupter: { interrupt(outcome: Reply | GatewayError): void; askForBody(): void } | undefined = undefined;
  /** Called once when the exchange ends. Unlike settle hooks, these also run for backends of earlier attempts. */
  onEnd: (() => void)[] | undefined = undefined;
  #celAttributes: CelAttributes | undefined = undefined;
  /** Contains each key followed by its value. A request has few keys, so an array is faster than a map. */
  #state: unknown[] | undefined = undefined;

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

  state<Value>(key: StateKey<Value>): Value | undefined {
    return this.#state?.[this.#stateIndex(key) + 1] as Value | undefined;
  }

  setState<Value>(key: StateKey<Value>, value: Value): void {
    this.#state ??= [];
    const at = this.#stateIndex(key);
    this.#state[at] = key;
    this.#state[at + 1] = value;
  }

  /** Returns the position of the key, or the next free position. */
  #stateIndex(key: StateKey<unknown>): number {
    const pairs = this.#state;
    if (pairs === undefined) return 0;
    let at = 0;
    while (at < pairs.length && pairs[at] !== key) at += 2;
    return at;
  }

  /** Charges a small body that has arrived. Returns false if the body needs a reservation (`bodyReservation`). */
  holdSmallBody(bytes: number): boolean {
    if (this.#memory === undefined || bytes === 0) return true;
    if (!this.#memory.bodies.holdSmall(bytes)) return false;
    this.#smallBodyBytes += bytes;
    return true;
  }

  /** Opens the body's memory reservation on first use. Returns undefined for a request without a memory budget. */
  bodyReservation(): BodyReservation | undefined {
    this.#bodyReservation ??= this.#memory?.bodies.open(this.client);
    return this.#bodyReservation;
  }

  /** Identifies the client for limits per client. */
  get client(): string {
    return clientKey(this.identity.principal, this.clientAddress);
  }

  /** Charges buffered response bytes until the exchange ends. Returns false if the budget is exhausted. */
  holdResponse(bytes: number): boolean {
    if (this.#memory === undefined) return true;
    this.#heldResponse ??= new MemoryAccount(this.#memory.streams, this.client);
    return this.#heldResponse.tryGrow(bytes);
  }

  /** Releases copies of the body that were needed only until the backend responds. */
  dropBodyCopies(): void {
    this.#bodyReservation?.dropCopies();
  }

  releaseMemory(): void {
    this.#bodyReservation?.release();
    this.#heldResponse?.close();
    if (this.#smallBodyBytes > 0) this.#memory?.bodies.releaseSmall(this.#smallBodyBytes);
    this.#smallBodyBytes = 0;
  }

  get clientAddress(): string {
    return clientAddress(this.source);
  }

  /** Records use this ID because clients cannot choose it. */
  get recordId(): string {
    this.#recordId ??= nextRecordId();
    return this.#recordId;
  }

  /** True if the request is traced or sampled, so that backends report wire-level events. */
  get isWatched(): boolean {
    return this.trace !== undefined || this.records.spans !== undefined;
  }

  /** Copies the headers before policies change `arrived`, because later steps need them as the client sent them. */
  keepHeaders(): void {
    this.#sentPairs ??= this.arrived.headers.pairs.slice();
  }

  get sentPairs(): readonly string[] {
    return this.#sentPairs ?? this.arrived.headers.pairs;
  }

  skip(reason: string): undefined {
    if (this.trace !== undefined) this.skipped = reason;
    return undefined;
  }

  /** Records a denial once per reason, because each attempt evaluates the policies again. */
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

  /** If several policies authenticate the request, their principals together identify the client. */
  authenticated(principal: string): void {
    this.identity.principal =
      this.identity.principal === undefined ? principal : `${this.identity.principal}\n${principal}`;
  }

  get celAttributes(): CelAttributes {
    this.#celAttributes ??= new CelAttributes(this);
    return this.#celAttributes;
  }
}

/** Copies the request and its headers. The body is shared. */
export function forkRequest(request: GatewayRequest): GatewayRequest {
  return {
    method: request.method,
    scheme: request.scheme,
    namesHttps: request.namesHttps,
    host: request.host,
    path: request.path,
    rawPath: request.rawPath,
    query: request.query,
    version: request.version,
    headers: request.headers.clone(),
    body: request.body,
    ...(request.sign === undefined ? {} : { sign: request.sign }),
  };
}
