/**
 * Runs the requests of one session and tracks them until their responses are sent.
 */

import { type Linked, LinkedList } from "../../base/linked-list.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { find, slice } from "../../json/json-text.ts";
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
} from "../protocol/call.ts";
import {
  type ClientNotification,
  type ClientRequest,
  errorText,
  INTERNAL_ERROR,
  INVALID_REQUEST,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import {
  CANCELLED,
  type CallOutcome,
  type CallReport,
  failureOutcome,
  isLargeAnswer,
  readyLargeAnswer,
  responseOutcome,
} from "./call-outcome.ts";
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
