/**
 * Represents one running request of a legacy client.
 */

import type { Linked } from "../../base/linked-list.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import type { McpGuardrails } from "../../core/mcp-guardrails.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
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
import { type ClientRequest, errorText, INTERNAL_ERROR, type ServerMessage, withId } from "../protocol/json-rpc.ts";
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

export interface CallSession {
  ask(question: Question, stream: EventStream): void;
  finished(call: SessionCall, outcome: CallOutcome): void;
}

/** The only stream of the HTTP+SSE transport does not end with a response. */
export const ENDLESS = { left: Number.POSITIVE_INFINITY };

export interface CallContext {
  /** The delay before the head of a slow response is sent. */
  readonly primeAfterMs?: number | undefined;
  readonly access: McpAccess | undefined;
  readonly guardrails: McpGuardrails | undefined;
  readonly headers: HeaderList | undefined;
  readonly report: CallReport;
  readonly wire: WireTap | undefined;
}

export class SessionCall implements Call, Linked<SessionCall> {
  next: SessionCall | undefined = undefined;
  previous: SessionCall | undefined = undefined;
  readonly request: ClientRequest;
  readonly headers: HeaderList | undefined;
  readonly wire: WireTap | undefined;
  readonly access: McpAccess | undefined;
  readonly guardrails: McpGuardrails | undefined;
  readonly #session: CallSession;
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
    this.#session.finished(this, outcome);
  }
}
