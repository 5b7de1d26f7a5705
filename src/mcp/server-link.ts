/**
 * The gateway as a client of one server: an id space of our own, the calls in flight, the server's questions,
 * time limits, and the connection behind it all. When the connection is lost, every call in flight is answered
 * with an error at once; the next call brings it up again, with growing pauses, and the owner repeats its
 * handshake, so that whoever stands before us keeps his session.
 */
import type { Clock, Timer } from "../lib/clock.ts";
import type { HeaderList } from "../lib/headers.ts";
import type { Logger } from "../lib/logger.ts";
import type { Call, Failure, Question, Running } from "./call.ts";
import type { Channel, ChannelHandlers, Outgoing } from "./channel.ts";
import { type Era, SUBSCRIPTION_ID } from "./era.ts";
import {
  INTERNAL_ERROR,
  idOf,
  notificationText,
  requestText,
  type ServerMessage,
  wireIdOf,
  withId,
} from "./json-rpc.ts";
import { type Edit, find, slice, splice } from "./json-text.ts";

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 10_000;
/** A connection that held this long was sound: the next loss counts as the first again. */
const SOUND_MS = 30_000;
/** However often a server reports progress, one call does not run longer. */
const MAX_CALL_MS = 3_600_000;
/** Calls that wait for a connection. */
const MAX_WAITING = 1_000;

export interface LinkEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly targetName: string;
  requestTimeoutMs(): number;
  /** What of a client's HTTP headers goes to the target: name, value, … */
  forwarded(headers: HeaderList): readonly string[] | undefined;
  /** Brings up a connection now or soon; `refused` if there is no room. Returns how to give up waiting. */
  connect(
    handlers: ChannelHandlers,
    opened: (channel: Channel, started: () => void) => void,
    refused: (reason: string, status: number) => void,
  ): () => void;
}

export interface LinkOwner {
  /** Runs on every new connection before calls pass; ends with `ready` or `refuse`. */
  handshake(io: Handshaking): void;
  notified(message: ServerMessage): void;
  asked(question: Question): void;
  /** Whether a question that belongs to no call can be delivered. */
  hearsQuestions(): boolean;
  /** The connection ended or did not come about; calls in flight have failed. `attempts` counts failures in a row. */
  lost(reason: string, attempts: number, status: number): void;
}

export interface Handshaking {
  /** What both sides agreed on: it goes into the headers of HTTP. */
  speak(era: Era, version: string): void;
  /** `answer` is undefined when the connection was lost meanwhile. */
  request(method: string, params: string, done: (answer: ServerMessage | undefined, reason: string) => void): void;
  notify(method: string, params: string): void;
  ready(): void;
  /** The server is there but will not do; the reason completes "target x …". */
  refuse(reason: string): void;
}

export class ServerLink {
  readonly #env: LinkEnv;
  readonly #owner: LinkOwner;
  readonly #pending = new Map<number, PendingCall>();
  #questions: Map<string, Question> | undefined = undefined;
  #waiting: PendingCall[] = [];
  #channel: Channel | undefined = undefined;
  #state: "down" | "connecting" | "up" | "closed" = "down";
  #nextId = 1;
  /** Of the last request: handshakes and notifications of ours go with them too. */
  #headers: readonly string[] | undefined;
  #failures = 0;
  #upSinceMs = 0;
  #retryAtMs = 0;
  #timer: Timer | undefined = undefined;
  #leaveLine: (() => void) | undefined = undefined;
  #started: (() => void) | undefined = undefined;

  /** `headers` are those of the client that opens it. */
  constructor(env: LinkEnv, owner: LinkOwner, headers?: HeaderList) {
    this.#env = env;
    this.#owner = owner;
    this.#headers = headers && env.forwarded(headers);
  }

  get address(): string | undefined {
    return this.#channel?.address;
  }

  get pendingCalls(): number {
    return this.#pending.size + this.#waiting.length;
  }

  get isUp(): boolean {
    return this.#state === "up";
  }

  /** It failed a moment ago; the pause before the next attempt is not over. */
  get isResting(): boolean {
    return this.#state !== "up" && this.#failures > 0 && this.#env.clock.monotonicMs() < this.#retryAtMs;
  }

  detail(): Record<string, unknown> {
    return {
      target: this.#env.targetName,
      state: this.#state,
      pendingCalls: this.pendingCalls,
      ...this.#channel?.detail(),
    };
  }

  /** Brings the connection up if it is down; calls do it by themselves. */
  connect(): void {
    if (this.#state !== "down") return;
    this.#state = "connecting";
    const pauseMs = this.#retryAtMs - this.#env.clock.monotonicMs();
    if (this.#failures > 0 && pauseMs > 0) this.#timer = this.#env.clock.after(pauseMs, () => this.#open());
    else this.#open();
  }

  call(call: Call): Running {
    const pending = new PendingCall(this, call, this.#env.clock.monotonicMs());
    if (this.#state === "up") this.#send(pending);
    else if (this.#state === "closed") pending.fail(this.failure("is closed"));
    else if (this.#waiting.length >= MAX_WAITING)
      pending.fail(this.failure("is not ready and too many requests wait for it", 503));
    else {
      this.#waiting.push(pending);
      this.connect();
    }
    return pending;
  }

  /** A notification for the server; lost if there is no connection, since it belongs to one. */
  notify(text: string, method: string): void {
    if (this.#state === "up") this.#sendText({ text, method });
  }

  cancel(pending: PendingCall, reason: string | undefined): void {
    if (this.#forget(pending)) this.#tellCancelled(pending, reason);
  }

  /** Ends calls about which the server is silent for too long. Called every now and then. */
  sweep(nowMs: number): void {
    const timeoutMs = this.#env.requestTimeoutMs();
    for (const pending of [...this.#pending.values(), ...this.#waiting]) {
      if (!pending.hasTimeLimit) continue;
      const waitsForClient = this.#questions !== undefined && this.#questions.size > 0;
      const isSilent = nowMs - pending.activityMs > timeoutMs && !waitsForClient;
      if (!isSilent && nowMs - pending.startedMs < MAX_CALL_MS) continue;
      this.#forget(pending);
      this.#tellCancelled(pending, "timeout");
      pending.fail(this.failure(`did not answer within ${Math.round(timeoutMs / 1000)} s`, 504));
    }
  }

  pause(): void {
    this.#channel?.pause();
  }

  resume(): void {
    this.#channel?.resume();
  }

  close(): Promise<void> {
    if (this.#state === "closed") return Promise.resolve();
    const channel = this.#drop("is closed");
    this.#state = "closed";
    return channel?.close() ?? Promise.resolve();
  }

  failure(what: string, status = 502): Failure {
    return { code: INTERNAL_ERROR, status, message: `target "${this.#env.targetName}" ${what}` };
  }

  #open(): void {
    this.#timer = undefined;
    const handlers: ChannelHandlers = {
      message: (message, about) => {
        if (this.#isCurrent(handlers)) this.#received(message, about);
      },
      failed: (wireId, reason) => {
        const pending = this.#pending.get(wireId);
        if (pending && this.#isCurrent(handlers)) {
          this.#forget(pending);
          pending.fail(this.failure(reason));
        }
      },
      expired: (wireId) => {
        if (this.#isCurrent(handlers)) this.#renew(wireId);
      },
      closed: (reason) => {
        if (this.#isCurrent(handlers)) this.#lost(reason);
      },
    };
    this.#current = handlers;
    this.#leaveLine = this.#env.connect(
      handlers,
      (channel, started) => {
        this.#leaveLine = undefined;
        this.#channel = channel;
        this.#started = started;
        this.#owner.handshake(this.#handshaking(handlers));
      },
      (reason, status) => this.#lost(reason, status),
    );
  }

  /** The connection in force: what an older one still reports is ignored. */
  #current: ChannelHandlers | undefined = undefined;

  #isCurrent(handlers: ChannelHandlers): boolean {
    return this.#current === handlers && this.#state !== "closed";
  }

  #handshaking(handlers: ChannelHandlers): Handshaking {
    return {
      speak: (era, version) => this.#channel?.speak(era, version),
      request: (method, params, done) => {
        if (!this.#isCurrent(handlers)) return;
        const wireId = this.#nextId++;
        const text = requestText(String(wireId), method, params);
        const call: Call = {
          request: { kind: "request", text, idStart: 0, idEnd: 0, id: String(wireId), method, params: {} },
          notified: (message) => this.#owner.notified(message),
          asked: (question) => this.#owner.asked(question),
          answered: (message) => done(message, ""),
          failed: (failure) => done(undefined, failure.message),
        };
        const pending = new PendingCall(this, call, this.#env.clock.monotonicMs());
        pending.wireId = wireId;
        this.#pending.set(wireId, pending);
        this.#sendText({ text, wireId, method });
      },
      notify: (method, params) => {
        if (this.#isCurrent(handlers)) this.#sendText({ text: notificationText(method, params), method });
      },
      ready: () => {
        if (!this.#isCurrent(handlers) || this.#state !== "connecting") return;
        this.#state = "up";
        this.#upSinceMs = this.#env.clock.monotonicMs();
        this.#started?.();
        const waiting = this.#waiting;
        this.#waiting = [];
        for (const pending of waiting) this.#send(pending);
      },
      refuse: (reason) => {
        if (this.#isCurrent(handlers)) this.#lost(reason);
      },
    };
  }

  #send(pending: PendingCall): void {
    const channel = this.#channel;
    if (channel === undefined) return;
    if (channel.isClogged) {
      pending.fail(this.failure("does not read its input", 503));
      return;
    }
    const { request, headers } = pending.call;
    if (headers) this.#headers = this.#env.forwarded(headers);
    const wireId = this.#nextId++;
    pending.wireId = wireId;
    this.#pending.set(wireId, pending);
    this.#sendText({ text: this.#wireText(pending, wireId), wireId, method: request.method });
  }

  #sendText(message: Outgoing): void {
    this.#channel?.send(this.#headers === undefined ? message : { ...message, headers: this.#headers });
  }

  /** The request under our id. A progress token becomes our id too: several clients may have chosen the same. */
  #wireText(pending: PendingCall, wireId: number): string {
    const { request } = pending.call;
    const meta = request.params._meta;
    if (typeof meta !== "object" || meta === null || !("progressToken" in meta)) return withId(request, String(wireId));
    const token = find(request.text, 0, "params", "_meta", "progressToken");
    if (token === undefined) return withId(request, String(wireId));
    pending.progressToken = slice(request.text, token);
    return splice(request.text, [
      { start: request.idStart, end: request.idEnd, text: String(wireId) },
      { ...token, text: String(wireId) },
    ]);
  }

  #received(message: ServerMessage, about: number | undefined): void {
    if (message.kind === "result" || message.kind === "error") {
      const pending = this.#pending.get(wireIdOf(message));
      // An answer that nobody asked for, or a second one, is dropped.
      if (pending === undefined) return;
      this.#pending.delete(pending.wireId);
      pending.isOver = true;
      pending.call.answered(message);
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
        const pending = this.#callOf(about, message.method === "notifications/message");
        if (pending === undefined) this.#owner.notified(message);
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

  #subscribed(message: ServerMessage, id: { start: number; end: number }): void {
    const pending = this.#pending.get(Number(slice(message.text, id)));
    if (pending)
      this.#tell(pending, edited(message, [{ start: id.start, end: id.end, text: pending.call.request.id }]));
  }

  #tell(pending: PendingCall, message: ServerMessage): void {
    pending.activityMs = this.#env.clock.monotonicMs();
    pending.call.notified(message);
  }

  /** The call that a message belongs to: the transport knows it, or there is only one that it can be. */
  #callOf(about: number | undefined, isPlausible: boolean): PendingCall | undefined {
    if (about !== undefined) return this.#pending.get(about);
    if (!isPlausible || this.#pending.size !== 1) return undefined;
    for (const only of this.#pending.values()) return only;
    return undefined;
  }

  #ask(message: ServerMessage, about: number | undefined): void {
    const id = idOf(message) as string;
    // Whether the connection is alive is between the server and us.
    if (message.method === "ping") {
      this.#sendText({ text: `{"jsonrpc":"2.0","id":${id},"result":{}}` });
      return;
    }
    const channel = this.#channel;
    const question: Question = {
      message,
      method: message.method as string,
      withdrawn: undefined,
      answer: (outcome) => {
        if (this.#questions?.get(id) !== question) return;
        this.#questions.delete(id);
        for (const pending of this.#pending.values()) pending.activityMs = this.#env.clock.monotonicMs();
        if (channel === this.#channel) this.#sendText({ text: `{"jsonrpc":"2.0","id":${id},${outcome}}` });
      },
    };
    this.#questions ??= new Map();
    this.#questions.set(id, question);
    const pending = this.#callOf(about, true) ?? (this.#owner.hearsQuestions() ? undefined : this.#newest());
    if (pending === undefined) this.#owner.asked(question);
    else pending.call.asked(question);
  }

  #newest(): PendingCall | undefined {
    let newest: PendingCall | undefined;
    for (const pending of this.#pending.values()) newest = pending;
    return newest;
  }

  /** The server takes a question back. */
  #withdraw(message: ServerMessage): void {
    const id = find(message.text, 0, "params", "requestId");
    if (id === undefined) return;
    const question = this.#questions?.get(slice(message.text, id));
    if (question === undefined) return;
    this.#questions?.delete(slice(message.text, id));
    const reason = find(message.text, 0, "params", "reason");
    question.withdrawn?.(reason && slice(message.text, reason));
  }

  #tellCancelled(pending: PendingCall, reason: string | undefined): void {
    // `initialize` must not be cancelled (2025-11-25, cancellation).
    if (pending.wireId === 0 || pending.call.request.method === "initialize") return;
    const params = { requestId: pending.wireId, ...(reason === undefined ? {} : { reason }) };
    this.#channel?.abandon(pending.wireId);
    this.#sendText({
      text: notificationText("notifications/cancelled", JSON.stringify(params)),
      method: "notifications/cancelled",
    });
  }

  /** False if it was over already. */
  #forget(pending: PendingCall): boolean {
    if (pending.isOver) return false;
    pending.isOver = true;
    if (pending.wireId !== 0) this.#pending.delete(pending.wireId);
    else this.#waiting = this.#waiting.filter((one) => one !== pending);
    return true;
  }

  /** Opens the session anew and sends the request again that found it gone: once, lest it go round for ever. */
  #renew(wireId: number | undefined): void {
    const pending = wireId === undefined ? undefined : this.#pending.get(wireId);
    if (pending && !pending.wasRepeated && this.#state === "up") {
      this.#pending.delete(pending.wireId);
      pending.wireId = 0;
      pending.wasRepeated = true;
    }
    this.#env.logger.info("a target forgot the session", { target: this.#env.targetName });
    const channel = this.#drop("forgot the session");
    this.#state = "down";
    void channel?.close();
    if (pending?.wasRepeated === true && pending.wireId === 0) {
      this.#waiting.push(pending);
      this.connect();
    }
  }

  #lost(reason: string, status = 502): void {
    const nowMs = this.#env.clock.monotonicMs();
    const wasSound = this.#state === "up" && nowMs - this.#upSinceMs > SOUND_MS;
    this.#failures = wasSound ? 1 : this.#failures + 1;
    this.#retryAtMs = nowMs + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 1));
    this.#env.logger.warn("a target was lost", { target: this.#env.targetName, reason, failures: this.#failures });
    const channel = this.#drop(reason, status);
    this.#state = "down";
    void channel?.close();
    this.#owner.lost(reason, this.#failures, status);
  }

  /** Fails everything that waits on this connection and forgets it. */
  #drop(reason: string, status = 502): Channel | undefined {
    this.#current = undefined;
    this.#timer?.cancel();
    this.#leaveLine?.();
    this.#leaveLine = undefined;
    this.#started?.();
    this.#started = undefined;
    const channel = this.#channel;
    this.#channel = undefined;
    const over = [...this.#pending.values(), ...this.#waiting];
    this.#pending.clear();
    this.#waiting = [];
    const questions = this.#questions;
    this.#questions = undefined;
    if (questions) for (const question of questions.values()) question.withdrawn?.(undefined);
    for (const pending of over) pending.fail(this.failure(reason, status));
    return channel;
  }
}

export class PendingCall implements Running {
  readonly call: Call;
  readonly startedMs: number;
  readonly #link: ServerLink;
  activityMs: number;
  /** 0 until it is sent. */
  wireId = 0;
  /** The client's own, as text. */
  progressToken: string | undefined = undefined;
  wasRepeated = false;
  isOver = false;

  constructor(link: ServerLink, call: Call, nowMs: number) {
    this.#link = link;
    this.call = call;
    this.startedMs = nowMs;
    this.activityMs = nowMs;
  }

  /** A subscription is silent by nature. */
  get hasTimeLimit(): boolean {
    return this.call.request.method !== "subscriptions/listen";
  }

  cancel(reason: string | undefined): void {
    this.#link.cancel(this, reason);
  }

  fail(failure: Failure): void {
    this.isOver = true;
    this.call.failed(failure);
  }
}

/** The message after edits behind or before its id; the id's place is found anew only if there is one. */
export function edited(message: ServerMessage, edits: readonly Edit[]): ServerMessage {
  const text = splice(message.text, edits);
  if (message.idEnd === 0) return { ...message, text };
  let shift = 0;
  for (const edit of edits) if (edit.end <= message.idStart) shift += edit.text.length - (edit.end - edit.start);
  return { ...message, text, idStart: message.idStart + shift, idEnd: message.idEnd + shift };
}
