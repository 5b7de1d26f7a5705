/**
 * The gateway as a client of one server: a connection, and what is said over it. When it is lost, calls in flight fail at
 * once; the next call brings it up again, with growing pauses, and the owner repeats its handshake.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { find, slice, splice } from "../../json/json-text.ts";
import type { Span } from "../../json/syntax.ts";
import type { Logger } from "../../observe/log/logger.ts";
import {
  type Call,
  type CallHandle,
  type Failure,
  type LoginRequired,
  type Question,
  type ServerError,
  serverFailure,
} from "../protocol/call.ts";
import {
  edited,
  idOf,
  notificationText,
  requestText,
  type ServerMessage,
  wireIdOf,
  withId,
} from "../protocol/json-rpc.ts";
import { type McpProtocol, SUBSCRIPTION_ID } from "../protocol/protocol-version.ts";
import type { Channel, ChannelHandlers, Outgoing } from "../transports/transport.ts";
import { CallTable, PendingCall, type PendingCallEnv } from "./pending-calls.ts";

const MAX_WAITING = 1_000;

export class ServerConnection {
  readonly #env: ConnectionOptions;
  readonly #owner: ConnectionListener;
  readonly #conversation: Conversation;
  readonly #pendingEnv: PendingCallEnv;
  #waiting: PendingCall[] = [];
  #channel: Channel | undefined = undefined;
  /** The connection in force: what an older one still reports is ignored. */
  #current: ChannelHandlers | undefined = undefined;
  #state: "down" | "parked" | "connecting" | "up" | "closed" = "down";
  /** Of the last request: handshakes and notifications of ours go with them too. */
  #headers: readonly string[] | undefined;
  readonly #pauses = new ReconnectBackoff();
  #timer: Timer | undefined = undefined;
  #leaveLine: (() => void) | undefined = undefined;
  #started: (() => void) | undefined = undefined;
  #loss: ConnectionLoss | undefined = undefined;
  /** Of the client's request that opens the connection: the handshake is what is sent for it. */
  #wire: WireTap | undefined = undefined;

  constructor(env: ConnectionOptions, owner: ConnectionListener, headers?: HeaderList) {
    this.#env = env;
    this.#owner = owner;
    this.#headers = headers && env.forwarded(headers);
    this.#pendingEnv = { cancelled: this.#cancel, broke: this.#broke };
    const own: PendingCallEnv = { cancelled: () => undefined, broke: this.#broke };
    this.#conversation = new Conversation({ clock: env.clock, send: this.#send, abandon: this.#abandon, own }, owner);
  }

  get pendingCalls(): number {
    return this.#conversation.size + this.#waiting.length;
  }

  /** Why the last connection ended or did not come about; completes "target x …". */
  get lossReason(): string | undefined {
    return this.#loss?.reason;
  }

  /** There is a connection, or a process that is to become one. */
  get isConnected(): boolean {
    return this.#channel !== undefined;
  }

  /** It failed a moment ago; the pause before the next attempt is not over. */
  get isBackingOff(): boolean {
    return this.#state !== "up" && this.#pauses.leftMs(this.#env.clock.monotonicMs()) > 0;
  }

  detail(): Record<string, unknown> {
    return {
      target: this.#env.targetName,
      state: this.#state,
      pendingCalls: this.pendingCalls,
      ...(this.#loss && this.#state !== "up" ? { lastError: this.#loss.reason, stderr: this.#loss.stderr } : {}),
      ...this.#channel?.detail(),
    };
  }

  /** Brings the connection up if it is down; calls do it by themselves. */
  connect(wire?: WireTap): void {
    if (this.#state !== "down" && this.#state !== "parked") return;
    this.#wire = wire;
    this.#state = "connecting";
    const pauseMs = this.#pauses.leftMs(this.#env.clock.monotonicMs());
    if (pauseMs > 0) this.#timer = this.#env.clock.after(pauseMs, () => this.#open());
    else this.#open();
  }

  call(call: Call): CallHandle {
    const pending = new PendingCall(call, this.#env.clock.monotonicMs(), this.#pendingEnv);
    if (this.#state === "up") this.#begin(pending);
    else if (this.#state === "closed") pending.fail(this.#failure("is closed"));
    else if (this.#waiting.length >= MAX_WAITING)
      pending.fail(this.#failure("is not ready and has too many waiting requests", "overloaded"));
    else {
      // The handshake goes with what this client shows now: what it showed before may have expired.
      if (call.headers) this.#headers = this.#env.forwarded(call.headers);
      this.#waiting.push(pending);
      this.connect();
    }
    return pending;
  }

  /** A notification for the server; lost if there is no connection, since it belongs to one. */
  notify(text: string, method: string, wire?: WireTap): void {
    if (this.#state === "up") this.#send({ text, method, wire });
  }

  /** Ends calls about which the server is silent for too long. Called every now and then. */
  sweep(nowMs: number): void {
    const timeoutMs = this.#env.requestTimeoutMs();
    for (const pending of [...this.#conversation.calls(), ...this.#waiting]) {
      if (!pending.isOverdue(nowMs, timeoutMs, this.#conversation.isAsking)) continue;
      pending.cancel("timeout");
      // What we asked ourselves cannot be cancelled; the connection is of no use without it.
      if (!pending.isOver) this.#conversation.take(pending.wireId);
      pending.fail(this.#failure(`did not respond within ${Math.round(timeoutMs / 1000)} s`, "backend_timeout"));
    }
  }

  /** Lets the connection go where nothing is under way: the next call brings it up again. Not a loss. */
  park(): Promise<void> | undefined {
    const isAtWork = this.#waiting.length > 0 || this.#conversation.calls().some((call) => !call.isSubscription);
    if (this.#state !== "up" || isAtWork || this.#conversation.isAsking) return undefined;
    const channel = this.#drop(this.#failure("is parked"));
    this.#state = "parked";
    this.#pauses.reset();
    return channel?.close();
  }

  pause(): void {
    this.#channel?.pause();
  }

  resume(): void {
    this.#channel?.resume();
  }

  close(): Promise<void> {
    if (this.#state === "closed") return Promise.resolve();
    const channel = this.#drop(this.#failure("is closed"));
    this.#state = "closed";
    return channel?.close() ?? Promise.resolve();
  }

  #open(): void {
    this.#timer = undefined;
    const handlers: ChannelHandlers = {
      message: (message, about) => {
        if (!this.#isCurrent(handlers)) return;
        try {
          this.#conversation.received(message, about);
        } catch (error) {
          this.#broke(error);
        }
      },
      failed: (wireId, reason, error) => {
        if (this.#isCurrent(handlers)) this.#conversation.take(wireId)?.fail(this.#failure(reason, error));
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
      (reason, error) => this.#lost(reason, error),
    );
  }

  #isCurrent(handlers: ChannelHandlers): boolean {
    return this.#current === handlers && this.#state !== "closed";
  }

  #handshaking(handlers: ChannelHandlers): Handshake {
    const prefix = this.#failure("").message;
    return {
      setProtocol: (era, version) => this.#channel?.setProtocol(era, version),
      request: (method, params, done) => {
        if (!this.#isCurrent(handlers)) return;
        this.#conversation.request(method, params, {
          wire: this.#wire,
          answered: (message) => done(message, ""),
          failed: ({ message, error }) => {
            const reason = message.startsWith(prefix) ? message.slice(prefix.length) : message;
            done(undefined, reason, typeof error === "object" ? error : undefined);
          },
        });
      },
      notify: (method, params) => {
        if (this.#isCurrent(handlers)) this.#send({ text: notificationText(method, params), method });
      },
      ready: () => {
        if (!this.#isCurrent(handlers) || this.#state !== "connecting") return;
        this.#state = "up";
        this.#wire = undefined;
        this.#pauses.up(this.#env.clock.monotonicMs());
        this.#env.up();
        this.#started?.();
        const waiting = this.#waiting;
        this.#waiting = [];
        for (const pending of waiting) this.#begin(pending);
      },
      refuse: (reason, error) => {
        if (this.#isCurrent(handlers)) this.#lost(reason, error);
      },
    };
  }

  #begin(pending: PendingCall): void {
    if (this.#channel?.isOverloaded === true) {
      pending.fail(this.#failure("does not read its input", "overloaded"));
      return;
    }
    if (pending.call.headers) this.#headers = this.#env.forwarded(pending.call.headers);
    this.#conversation.begin(pending);
  }

  readonly #send = (message: Outgoing): void => {
    const headers = withToken(this.#headers, this.#env.authorization?.());
    this.#channel?.send(headers === undefined ? message : { ...message, headers });
  };

  readonly #abandon = (wireId: number): void => this.#channel?.abandon(wireId);

  readonly #cancel = (pending: PendingCall, reason: string | undefined): void => {
    pending.isOver = true;
    if (pending.wireId !== 0) this.#conversation.abandon(pending, reason);
    else this.#waiting = this.#waiting.filter((one) => one !== pending);
  };

  readonly #broke = (error: unknown): void => {
    const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.#env.logger.error("cannot handle a message from an MCP server", { target: this.#env.targetName, reason });
  };

  /** Opens the session anew and sends the request again that found it gone: once, lest it go round for ever. */
  #renew(wireId: number | undefined): void {
    const found = wireId === undefined ? undefined : this.#conversation.take(wireId);
    this.#env.logger.info("MCP server lost the session", { target: this.#env.targetName });
    const mayRepeat = found !== undefined && !found.wasRepeated && this.#state === "up";
    const channel = this.#drop(this.#failure("lost the session"));
    this.#state = "down";
    void channel?.close();
    if (!mayRepeat) {
      found?.fail(this.#failure("lost the session"));
      return;
    }
    found.wireId = 0;
    found.wasRepeated = true;
    this.#waiting.push(found);
    this.connect();
  }

  #lost(reason: string, error: ServerError | LoginRequired = "backend_unavailable"): void {
    this.#pauses.lost(this.#env.clock.monotonicMs(), this.#state === "up");
    // That a user is not logged in is no fault of the server.
    const { logger, targetName: target } = this.#env;
    logger[typeof error === "object" ? "info" : "warn"]("MCP server failed", { target, reason });
    const channel = this.#drop(this.#failure(reason, error));
    this.#state = "down";
    this.#loss = { reason, error, failedStarts: this.#pauses.failedStarts, stderr: channel?.stderrTail?.() ?? [] };
    void channel?.close();
    this.#owner.lost(this.#loss);
  }

  /** Fails everything that waits on this connection and forgets it. */
  #drop(failure: Failure): Channel | undefined {
    this.#current = undefined;
    this.#timer?.cancel();
    this.#leaveLine?.();
    this.#leaveLine = undefined;
    this.#started?.();
    this.#started = undefined;
    const channel = this.#channel;
    this.#channel = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#conversation.end(failure);
    for (const pending of waiting) pending.fail(failure);
    return channel;
  }

  #failure(what: string, error?: ServerError | LoginRequired): Failure {
    return serverFailure(`target "${this.#env.targetName}" ${what}`, error);
  }
}

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
  canDeliverQuestions(): boolean;
}

export class Conversation {
  readonly #env: ConversationEnv;
  readonly #listener: Listener;
  readonly #pending = new CallTable();
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
    const chosen = pending ?? (this.#listener.canDeliverQuestions() ? undefined : this.#newest());
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

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 10_000;
/** A connection that held this long was sound: the next loss counts as the first again. */
const SOUND_MS = 30_000;

export class ReconnectBackoff {
  /** Attempts in a row that did not come about. */
  failedStarts = 0;
  #losses = 0;
  #upSinceMs = 0;
  #retryAtMs = 0;

  /** Of the pause before the next attempt; 0 or less when it may be made. */
  leftMs(nowMs: number): number {
    return this.#losses > 0 ? this.#retryAtMs - nowMs : 0;
  }

  up(nowMs: number): void {
    this.failedStarts = 0;
    this.#upSinceMs = nowMs;
  }

  lost(nowMs: number, wasUp: boolean): void {
    this.#losses = wasUp && nowMs - this.#upSinceMs > SOUND_MS ? 1 : this.#losses + 1;
    if (!wasUp) this.failedStarts += 1;
    this.#retryAtMs = nowMs + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#losses - 1));
  }

  /** It was let go on purpose. */
  reset(): void {
    this.#losses = 0;
  }
}

export interface ConnectionOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly targetName: string;
  requestTimeoutMs(): number;
  /** A handshake succeeded. */
  up(): void;
  /** The access token that goes with every message, where the gateway holds one for the user. */
  authorization?(): string | undefined;
  /** What of a client's HTTP headers goes to the target: name, value, … */
  forwarded(headers: HeaderList): readonly string[] | undefined;
  /** Brings up a connection now or soon; `refused` if it cannot be. Returns how to give up waiting. */
  connect(
    handlers: ChannelHandlers,
    opened: (channel: Channel, started: () => void) => void,
    refused: (reason: string, error: ServerError) => void,
  ): () => void;
}

export interface ConnectionListener extends Listener {
  /** Runs on every new connection before calls pass; ends with `ready` or `refuse`. */
  handshake(io: Handshake): void;
  /** The connection ended or did not come about; calls in flight have failed. */
  lost(loss: ConnectionLoss): void;
}

export interface ConnectionLoss {
  /** Completes "target x …". */
  readonly reason: string;
  readonly error: ServerError | LoginRequired;
  /** How often in a row the server could not be brought up. */
  readonly failedStarts: number;
  /** The last lines that its process wrote, where it is one. */
  readonly stderr: readonly string[];
}

export interface Handshake {
  /** What both sides agreed on: it goes into the headers of HTTP. */
  setProtocol(era: McpProtocol, version: string): void;
  /** `answer` is undefined if there is none; the reason then completes "target x …". */
  request(
    method: string,
    params: string,
    done: (answer: ServerMessage | undefined, reason: string, error?: LoginRequired) => void,
  ): void;
  notify(method: string, params: string): void;
  ready(): void;
  /** The server is there but will not do; the reason completes "target x …". */
  refuse(reason: string, error?: LoginRequired): void;
}

/** Headers with the access token, where there is one: name, value, … */
export function withToken(
  headers: readonly string[] | undefined,
  token: string | undefined,
): readonly string[] | undefined {
  return token === undefined ? headers : [...(headers ?? []), "authorization", `Bearer ${token}`];
}
