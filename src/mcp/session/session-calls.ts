/**
 * Runs the requests of one session and tracks them until their responses are sent. Determines the outcome of each
 * request for logs, request records, and metrics, including failures inside successful HTTP responses.
 */

import { surface } from "../../base/errors.ts";
import { type Linked, LinkedList } from "../../base/linked-list.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { runInSlices, SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { BackendProblem, BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess, McpOutcome } from "../../core/request-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { elements, find, findInSteps, lineBytesInSteps, member, occursInSteps, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { Span } from "../../json/syntax.ts";
import type { Router } from "../aggregation/router.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  type GuardReporter,
  isChallenge,
  type Question,
  type RoutedTarget,
  type ShadowReporter,
  serverFailure,
} from "../protocol/call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  errorText,
  INTERNAL_ERROR,
  INVALID_PARAMS,
  INVALID_REQUEST,
  resultPieces,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import type { EventStream } from "./event-stream.ts";

/** Limits the cancellations from other replicas that wait until the session is resumed. Others are dropped. */
const MAX_WAITING_CANCELLATION_CHARS = 64 * 1024;
const CALL_METHODS: ReadonlySet<string> = new Set(["tools/call", "prompts/get", "resources/read"]);

export interface CallSession {
  readonly isOpening: boolean;
  readonly router: Router | undefined;
  readonly general: EventStream;
  createStream(primeAfterMs?: number, answers?: string): EventStream;
  callStarted(method: string): void;
  callFinished(): void;
  ask(question: Question, stream: EventStream): void;
}

/** The only stream of the HTTP+SSE transport does not end with a response. */
const ENDLESS = { left: Number.POSITIVE_INFINITY };

export interface CallContext {
  /** The delay before the head of a slow response is sent. */
  readonly primeAfterMs?: number | undefined;
  readonly access: McpAccess | undefined;
  readonly guardrails: McpGuardrails | undefined;
  readonly headers: HeaderList | undefined;
  readonly report: CallReport;
  readonly wire: WireTap | undefined;
}

export class SessionCalls {
  readonly #session: CallSession;
  readonly #running = new LinkedList<SessionCall>();
  #waitingCancellations: ClientNotification[] = [];
  count = 0;
  errorCount = 0;

  constructor(session: CallSession) {
    this.#session = session;
  }

  get size(): number {
    return this.#running.size;
  }

  request(requests: readonly ClientRequest[], sink: ResponseReceiver, context: CallContext): BackendRun {
    const stream = this.#session.createStream(
      context.primeAfterMs,
      requests.length === 1 ? requests[0]?.id : undefined,
    );
    stream.attach(sink);
    const group = { left: requests.length };
    for (const request of requests) this.#start(new SessionCall(request, this.#session, this, stream, group, context));
    return stream;
  }

  /** Runs a request of the HTTP+SSE transport, which sends the response on its only event stream. */
  requestOnStream(request: ClientRequest, context: CallContext): void {
    this.#start(new SessionCall(request, this.#session, this, this.#session.general, ENDLESS, context));
  }

  #start(call: SessionCall): void {
    this.#running.add(call);
    this.#session.callStarted(call.request.method);
    const { router } = this.#session;
    if (router) call.running = router.run(call);
    else
      call.failed({ code: INVALID_REQUEST, status: 400, message: "Invalid Request: the session is not initialized" });
  }

  finished(call: SessionCall, { kind }: CallOutcome): void {
    this.#running.remove(call);
    if (CALL_METHODS.has(call.request.method)) {
      this.count += 1;
      if (kind !== "ok" && kind !== "cancelled") this.errorCount += 1;
    }
    this.#session.callFinished();
  }

  abandon(reason: string): void {
    this.#running.each((call) => call.abandon(reason));
  }

  /** Returns false if the session has no such call. */
  cancel({ params, text }: ClientNotification): boolean {
    const span = find(text, 0, "params", "requestId");
    const id = span && slice(text, span);
    const call = this.#running.find(({ request }) => request.id === id);
    call?.cancel(typeof params.reason === "string" ? params.reason : undefined);
    return call !== undefined;
  }

  /** The canceled call may wait until this session is resumed. It starts before the next event-loop iteration then. */
  cancelRemotely(message: ClientNotification): void {
    const waiting = this.#waitingCancellations;
    const chars = waiting.reduce((sum, { text }) => sum + text.length, message.text.length);
    if (!this.#session.isOpening) this.cancel(message);
    else if (chars <= MAX_WAITING_CANCELLATION_CHARS) waiting.push(message);
  }

  cancelWaiting(): void {
    const waiting = this.#waitingCancellations;
    if (waiting.length === 0) return;
    this.#waitingCancellations = [];
    setImmediate(() => {
      for (const message of waiting) this.cancel(message);
    });
  }
}

class SessionCall implements Call, Linked<SessionCall> {
  next: SessionCall | undefined = undefined;
  previous: SessionCall | undefined = undefined;
  readonly request: ClientRequest;
  readonly headers: HeaderList | undefined;
  readonly wire: WireTap | undefined;
  readonly access: McpAccess | undefined;
  readonly guardrails: McpGuardrails | undefined;
  readonly #session: CallSession;
  readonly #calls: SessionCalls;
  readonly #stream: EventStream;
  readonly #group: { left: number };
  readonly #report: CallReport;
  running: CallHandle | undefined = undefined;
  #target: RoutedTarget | undefined = undefined;
  #isOver = false;

  /** `group` counts the remaining requests of the same POST. The stream ends when it reaches 0. */
  constructor(
    request: ClientRequest,
    session: CallSession,
    calls: SessionCalls,
    stream: EventStream,
    group: { left: number },
    { headers, report, wire, access, guardrails }: CallContext,
  ) {
    this.request = request;
    this.headers = headers;
    this.wire = wire;
    this.access = access;
    this.guardrails = guardrails;
    this.#session = session;
    this.#calls = calls;
    this.#stream = stream;
    this.#group = group;
    this.#report = report;
  }

  get caller(): CelAttributes {
    return this.#report.caller;
  }

  get watched(): ShadowReporter {
    return this.#report.watched;
  }

  get guarded(): GuardReporter {
    return this.#report.guarded;
  }

  routed(target: RoutedTarget): void {
    this.#target = target;
  }

  notified(message: ServerMessage): void {
    if (!this.#isOver) this.#stream.event(message.text);
  }

  asked(question: Question): void {
    this.#session.ask(question, this.#stream);
  }

  answered(message: ServerMessage): void {
    if (this.#isOver) return;
    if (!isLargeAnswer(message)) {
      this.#end(responseOutcome(this.request, this.#target, message), withId(message, this.request.id));
      return;
    }
    readyLargeAnswer(message, {
      request: this.request,
      target: this.#target,
      isOver: () => this.#isOver,
      ready: ({ outcome, bytes }) => this.#end(outcome, message.text, undefined, bytes),
      failed: (failure) => this.failed(failure),
    });
  }

  failed(failure: Failure): void {
    const text = errorText(this.request.id, failure.code, failure.message, failure.data);
    this.#end(failureOutcome(failure), text, failure);
  }

  /** Handles a cancellation by the client, which receives no response (2025-11-25, cancellation). */
  cancel(reason: string | undefined): void {
    this.running?.cancel(reason);
    this.#end(CANCELLED, undefined);
  }

  abandon(reason: string): void {
    this.running?.cancel(undefined);
    this.#end(CANCELLED, errorText(this.request.id, INTERNAL_ERROR, reason));
  }

  #end(outcome: CallOutcome, text: string | undefined, failure?: Failure, bytes?: readonly Buffer[]): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#report.ended(this.request, this.#target, outcome, text);
    this.#group.left -= 1;
    const isLast = this.#group.left === 0;
    if (text === undefined) {
      if (isLast) this.#stream.complete();
    } else if (isLast && failure !== undefined && isChallenge(failure)) this.#stream.refuse(failure, text);
    else if (isLast) this.#stream.last(bytes ?? text);
    else this.#stream.event(bytes ?? text);
    // The session is notified after the response is sent, because a retiring session ends with its last response.
    this.#calls.finished(this, outcome);
  }
}

const PART = peerInput("mcp-server/part");

/** A longer reason is truncated and not decoded. */
const MAX_REASON_TEXT_CHARS = 4_000;

/**
 * The pattern may also match inside a string or deeper in the result, so the member itself is checked after a match.
 */
const IS_ERROR_TRUE = /"isError"\s*:\s*true/;

export interface CallOutcome {
  readonly kind: McpOutcome;
  readonly problem: BackendProblem | undefined;
}

export interface CallReport {
  readonly caller: CelAttributes;
  readonly watched: ShadowReporter;
  readonly guarded: GuardReporter;
  ended(request: ClientRequest, target: RoutedTarget | undefined, outcome: CallOutcome, answer?: string): void;
}

export const CANCELLED: CallOutcome = { kind: "cancelled", problem: undefined };
export const SUCCEEDED: CallOutcome = { kind: "ok", problem: undefined };

export function responseOutcome(
  request: ClientRequest,
  target: RoutedTarget | undefined,
  { kind, text }: ServerMessage,
): CallOutcome {
  if (kind === "error") {
    const code = Number(textAt(text, find(text, 0, "error", "code")));
    return rpcError(code, shown(target, stringAt(text, find(text, 0, "error", "message"))));
  }
  // A native search is faster than traversing the result, and most results are not errors.
  if (request.method !== "tools/call" || !IS_ERROR_TRUE.test(text)) return SUCCEEDED;
  const result = find(text, 0, "result");
  const flag = result && member(text, result.start, "isError");
  if (!result || !flag || slice(text, flag) !== "true") return SUCCEEDED;
  const reason = shown(target, firstText(text, result)) || "the result has isError and no text";
  return toolError(reason);
}

export function toolError(reason: string): CallOutcome {
  return { kind: "tool_error", problem: { code: "tool_error", source: "upstream", reason } };
}

export function failureOutcome(failure: Failure): CallOutcome {
  const { error, message, detail } = failure;
  if (error === undefined) return rpcError(failure.code, message);
  const reason = detail ?? message;
  if (error === "authorization_denied" || typeof error === "object")
    return { kind: "denied", problem: { code: "authorization_denied", source: "client", reason } };
  const source = error === "overloaded" ? "gateway" : "upstream";
  return { kind: "failed", problem: { code: error, source, reason, said: error } };
}

function rpcError(code: number, message: string): CallOutcome {
  const isClients = code >= INVALID_PARAMS && code <= INVALID_REQUEST;
  const reason = `${message} (${code})`;
  return { kind: "rpc_error", problem: { code: "rpc_error", source: isClients ? "client" : "upstream", reason } };
}

function firstText(text: string, result: Span): string {
  const content = member(text, result.start, "content");
  for (const item of content ? elements(text, content.start) : []) {
    const span = member(text, item.start, "text");
    if (span) return stringAt(text, span);
  }
  return "";
}

function shown(target: RoutedTarget | undefined, text: string): string {
  return target === undefined ? text : target.shown(text);
}

function textAt(text: string, span: Span | undefined): string {
  return span === undefined ? "" : slice(text, span);
}

function stringAt(text: string, span: Span | undefined): string {
  if (span === undefined || text[span.start] !== '"') return "";
  if (span.end - span.start > MAX_REASON_TEXT_CHARS)
    return text.slice(span.start + 1, span.start + 1 + MAX_REASON_TEXT_CHARS);
  return readJson(PART, slice(text, span)) as string;
}

const IS_ERROR = /"isError"/;
const IS_ERROR_CHARS = 9;

export interface LargeAnswer {
  readonly outcome: CallOutcome;
  /** The response with the client's id and without line breaks. */
  readonly bytes: readonly Buffer[];
}

export interface Waiting {
  readonly request: ClientRequest;
  readonly target: RoutedTarget | undefined;
  isOver(): boolean;
  ready(answer: LargeAnswer): void;
  failed(failure: Failure): void;
}

export function isLargeAnswer({ text }: ServerMessage): boolean {
  return text.length > SLICED_BYTES;
}

export function readyLargeAnswer(message: ServerMessage, call: Waiting): void {
  runInSlices(readyInSteps(message, call), () => call.isOver())
    .then((answer) => call.ready(answer))
    .catch((error: unknown) => {
      surface(error);
      call.failed(serverFailure("the response could not be processed"));
    });
}

export function* readyInSteps(
  message: ServerMessage,
  { request, target }: Pick<Waiting, "request" | "target">,
): Steps<LargeAnswer> {
  const { text, idStart, idEnd, members } = message;
  const bytes: Buffer[] = [];
  if (members !== undefined && !members.has("isError")) {
    for (const piece of resultPieces(request.id, members)) yield* lineBytesInSteps(piece, bytes);
    return { outcome: SUCCEEDED, bytes };
  }
  const outcome = yield* outcomeInSteps(message, request, target);
  yield* lineBytesInSteps(text.slice(0, idStart), bytes);
  bytes.push(Buffer.from(request.id));
  yield* lineBytesInSteps(text.slice(idEnd), bytes);
  return { outcome, bytes };
}

function* outcomeInSteps(
  message: ServerMessage,
  request: ClientRequest,
  target: RoutedTarget | undefined,
): Steps<CallOutcome> {
  if (message.kind !== "result") return responseOutcome(request, target, message);
  if (request.method !== "tools/call") return SUCCEEDED;
  if (!(yield* occursInSteps(message.text, IS_ERROR, IS_ERROR_CHARS))) return SUCCEEDED;
  const flag = yield* findInSteps(message.text, 0, "result", "isError");
  if (flag === undefined || slice(message.text, flag) !== "true") return SUCCEEDED;
  return toolError("a large result has isError");
}
