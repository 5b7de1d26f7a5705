/**
 * What is said over a connection to a server: the calls in flight under ids of our own, the answers that belong
 * to them, what the server reports about them, and the questions it asks. Ids go on over new connections, so that
 * a late answer of an old one can never be taken for another's.
 */
import type { Clock } from "../../base/clock.ts";
import { find, type Span, slice, splice } from "../../json/json-text.ts";
import type { Call, Failure, Question } from "../protocol/call.ts";
import { SUBSCRIPTION_ID } from "../protocol/era.ts";
import {
  edited,
  idOf,
  notificationText,
  requestText,
  type ServerMessage,
  wireIdOf,
  withId,
} from "../protocol/json-rpc.ts";
import type { Outgoing } from "../transports/channel.ts";
import { CallSlots } from "./call-slots.ts";
import { PendingCall, type PendingCallEnv } from "./pending-call.ts";

/** What a server may have asked without an answer yet. */
const MAX_QUESTIONS = 1_000;

export interface ConversationEnv {
  readonly clock: Clock;
  send(message: Outgoing): void;
  abandon(wireId: number): void;
  /** For requests of our own. */
  readonly own: PendingCallEnv;
}

/** Who hears what belongs to no call. */
export interface Listener {
  notified(message: ServerMessage): void;
  asked(question: Question): void;
  /** Whether a question that belongs to no call can be delivered. */
  hearsQuestions(): boolean;
}

export class Conversation {
  readonly #env: ConversationEnv;
  readonly #listener: Listener;
  readonly #pending = new CallSlots();
  #questions: Map<string, Question> | undefined = undefined;

  constructor(env: ConversationEnv, listener: Listener) {
    this.#env = env;
    this.#listener = listener;
  }

  get size(): number {
    return this.#pending.size;
  }

  /** The server waits for a client's answer: it cannot be blamed for its silence. */
  get isAsking(): boolean {
    return this.#questions !== undefined && this.#questions.size > 0;
  }

  calls(): readonly PendingCall[] {
    return this.#pending.all();
  }

  begin(pending: PendingCall): void {
    const wireId = this.#pending.add(pending);
    const { request, wire } = pending.call;
    const isAlone = this.#pending.size === 1;
    this.#env.send({ text: wireText(pending, wireId), wireId, method: request.method, wire, isAlone });
  }

  /** A request of our own, before others may pass. */
  request(method: string, params: string, call: Pick<Call, "answered" | "failed" | "wire">): void {
    const request = { kind: "request", text: "", idStart: 0, idEnd: 0, id: "0", method, params: {} } as const;
    const { notified, asked } = this.#listener;
    const whole: Call = {
      ...call,
      request,
      notified: notified.bind(this.#listener),
      asked: asked.bind(this.#listener),
    };
    const wireId = this.#pending.add(new PendingCall(whole, this.#env.clock.monotonicMs(), this.#env.own));
    this.#env.send({ text: requestText(String(wireId), method, params), wireId, method, wire: call.wire });
  }

  /** Takes a call out without telling anybody; undefined if it is not there. */
  take(wireId: number): PendingCall | undefined {
    return this.#pending.take(wireId);
  }

  /** Nobody waits for this call any more: the server is told. */
  abandon(pending: PendingCall, reason: string | undefined): void {
    this.#pending.take(pending.wireId);
    // `initialize` must not be cancelled (2025-11-25, cancellation).
    if (pending.call.request.method === "initialize") return;
    const params = { requestId: pending.wireId, ...(reason === undefined ? {} : { reason }) };
    this.#env.abandon(pending.wireId);
    const method = "notifications/cancelled";
    this.#env.send({ text: notificationText(method, JSON.stringify(params)), method });
  }

  /** The connection is gone: every call fails, every question is void. */
  end(failure: Failure): void {
    const over = this.#pending.takeAll();
    const questions = this.#questions;
    this.#questions = undefined;
    if (questions) for (const question of questions.values()) question.withdrawn?.(undefined);
    for (const pending of over) pending.fail(failure);
  }

  /** `about` is the call on whose stream the message came, where the transport knows. */
  received(message: ServerMessage, about: number | undefined): void {
    if (message.kind === "result" || message.kind === "error") {
      const pending = this.take(wireIdOf(message));
      // An answer that nobody asked for, or a second one, is dropped.
      if (pending === undefined) return;
      pending.answer(message);
    } else if (message.kind === "request") this.#ask(message, about);
    else this.#notification(message, about);
  }

  #notification(message: ServerMessage, about: number | undefined): void {
    if (message.method === "notifications/progress") this.#progress(message);
    else if (message.method === "notifications/cancelled") this.#withdraw(message);
    else {
      const subscription = find(message.text, 0, "params", "_meta", SUBSCRIPTION_ID);
      if (subscription !== undefined) this.#subscribed(message, subscription);
      else {
        const isLog = message.method === "notifications/message";
        const pending = about === undefined ? (isLog ? this.#only() : undefined) : this.#pending.get(about);
        if (pending === undefined) this.#listener.notified(message);
        else this.#tell(pending, message);
      }
    }
  }

  #progress(message: ServerMessage): void {
    const token = find(message.text, 0, "params", "progressToken");
    const pending = token && this.#pending.get(Number(slice(message.text, token)));
    if (!token || pending?.progressToken === undefined) return;
    this.#tell(pending, edited(message, [{ ...token, text: pending.progressToken }]));
  }

  #subscribed(message: ServerMessage, id: Span): void {
    const pending = this.#pending.get(Number(slice(message.text, id)));
    if (pending)
      this.#tell(pending, edited(message, [{ start: id.start, end: id.end, text: pending.call.request.id }]));
  }

  #tell(pending: PendingCall, message: ServerMessage): void {
    pending.activityMs = this.#env.clock.monotonicMs();
    pending.call.notified(message);
  }

  /** The one call that a message can belong to, where the transport does not say; undefined if there are several. */
  #only(): PendingCall | undefined {
    let only: PendingCall | undefined;
    for (const pending of this.#pending.all()) {
      if (pending.isSubscription) continue;
      if (only !== undefined) return undefined;
      only = pending;
    }
    return only;
  }

  #newest(): PendingCall | undefined {
    let newest: PendingCall | undefined;
    for (const pending of this.#pending.all()) if (!pending.isSubscription) newest = pending;
    return newest;
  }

  #ask(message: ServerMessage, about: number | undefined): void {
    const id = idOf(message) as string;
    // Whether the connection is alive is between the server and us.
    if (message.method === "ping") {
      this.#env.send({ text: `{"jsonrpc":"2.0","id":${id},"result":{}}` });
      return;
    }
    const question: Question = {
      message,
      method: message.method as string,
      withdrawn: undefined,
      answer: (outcome, wire) => {
        if (this.#questions?.get(id) !== question) return;
        this.#questions.delete(id);
        const nowMs = this.#env.clock.monotonicMs();
        for (const pending of this.#pending.all()) pending.activityMs = nowMs;
        this.#env.send({ text: `{"jsonrpc":"2.0","id":${id},${outcome}}`, wire });
      },
    };
    this.#questions ??= new Map();
    if (this.#questions.size >= MAX_QUESTIONS) {
      this.#env.send({
        text: `{"jsonrpc":"2.0","id":${id},"error":{"code":-32603,"message":"Too many open questions"}}`,
      });
      return;
    }
    // An id that is asked again takes the place of the question before.
    this.#questions.get(id)?.withdrawn?.(undefined);
    this.#questions.set(id, question);
    const pending = about === undefined ? this.#only() : this.#pending.get(about);
    const chosen = pending ?? (this.#listener.hearsQuestions() ? undefined : this.#newest());
    if (chosen === undefined) this.#listener.asked(question);
    else chosen.call.asked(question);
  }

  /** The server takes a question back. */
  #withdraw(message: ServerMessage): void {
    const span = find(message.text, 0, "params", "requestId");
    const id = span && slice(message.text, span);
    const question = id === undefined ? undefined : this.#questions?.get(id);
    if (id === undefined || question === undefined) return;
    this.#questions?.delete(id);
    const reason = find(message.text, 0, "params", "reason");
    question.withdrawn?.(reason && slice(message.text, reason));
  }
}

/** The request under our id. A progress token becomes our id too: several clients may have chosen the same. */
function wireText(pending: PendingCall, wireId: number): string {
  const { request } = pending.call;
  const id = String(wireId);
  const meta = request.params._meta;
  const hasToken = typeof meta === "object" && meta !== null && "progressToken" in meta;
  const token = hasToken ? find(request.text, 0, "params", "_meta", "progressToken") : undefined;
  if (token === undefined) return withId(request, id);
  pending.progressToken = slice(request.text, token);
  return splice(request.text, [
    { start: request.idStart, end: request.idEnd, text: id },
    { ...token, text: id },
  ]);
}
