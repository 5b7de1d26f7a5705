/**
 * Manages the connection to one MCP server, including the handshake, calls, server messages, and reconnects.
 *
 *   down ─connect→ connecting ─ready→ up ─loss→ down        (the next call connects again, after a backoff)
 *                                     up ─park→ parked      (released while idle; the next call connects again)
 *   any state ─close→ closed
 */

import type { Clock, Timer } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { find, slice, splice } from "../../json/json-text.ts";
import { editAt, type Span } from "../../json/syntax.ts";
import type { Logger } from "../../record/log/logger.ts";
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
  type ClientNotification,
  edited,
  messageId,
  notificationText,
  parseWireId,
  requestText,
  type ServerMessage,
  withId,
} from "../protocol/json-rpc.ts";
import { type McpProtocol, SUBSCRIPTION_ID } from "../protocol/protocol-version.ts";
import type { Channel, ChannelHandlers, Outgoing } from "../transports/transport.ts";
import { type CallOwner, CallTable, PendingCall } from "./pending-calls.ts";
import type { Target } from "./target.ts";
import type { ConnectionLoss, OpenOutcome, ServerAbout, Upstream } from "./upstream.ts";

const MAX_WAITING = 1_000;
const MAX_QUESTIONS = 1_000;

const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 10_000;
/** A connection that was up longer than this restarts the backoff at its first delay. */
const HEALTHY_MS = 30_000;

export interface ConnectionOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  requestTimeoutMs(): number;
  up(): void;
  /** Returns the user's access token for this server, which is sent with every message. */
  authorization?(): string | undefined;
  /** Returns alternating names and values of the headers that the server receives from the client's request. */
  forwarded(headers: HeaderList): readonly string[] | undefined;
  /** Opens a channel now or later, or calls `refused` with the reason. Returns a function that cancels the attempt. */
  connect(
    handlers: ChannelHandlers,
    opened: (channel: Channel, started: () => void) => void,
    refused: (reason: string, error: ServerError) => void,
  ): () => void;
}

export interface Handshake {
  setProtocol(protocol: McpProtocol, version: string): void;
  /** Without a response, `answer` is undefined and `reason` completes the sentence "target x …". */
  request(
    method: string,
    params: string,
    done: (answer: ServerMessage | undefined, reason: string, error?: LoginRequired) => void,
  ): void;
  notify(method: string, params: string): void;
  ready(): void;
  /** Ends the connection. `reason` completes the sentence "target x …". */
  refuse(reason: string, error?: LoginRequired): void;
}

/** Connects one session or client group to its server. Subclasses speak the client's protocol version. */
export abstract class ServerConnection implements Upstream {
  readonly target: Target;
  about: ServerAbout | undefined = undefined;
  readonly #options: ConnectionOptions;
  readonly #backoff = new ReconnectBackoff();
  #state: "down" | "parked" | "connecting" | "up" | "closed" = "down";
  #channel: Channel | undefined = undefined;
  /** Identifies the current channel. Events from earlier channels are ignored. */
  #current: ChannelHandlers | undefined = undefined;
  #reconnectTimer: Timer | undefined = undefined;
  #cancelConnect: (() => void) | undefined = undefined;
  #started: (() => void) | undefined = undefined;
  #loss: ConnectionLoss | undefined = undefined;

  readonly #calls = new CallTable();
  #waiting: PendingCall[] = [];
  #questions: Map<string, Question> | undefined = undefined;
  /** Holds the headers to forward from the latest client request that had headers. Every message is sent with them. */
  #headers: readonly string[] | undefined;
  #wire: WireTap | undefined = undefined;

  constructor(target: Target, options: ConnectionOptions, headers: HeaderList | undefined) {
    this.target = target;
    this.#options = options;
    this.#headers = headers && options.forwarded(headers);
  }

  abstract open(done: (outcome: OpenOutcome) => void, wire?: WireTap): void;

  abstract notify(message: ClientNotification, wire?: WireTap): void;

  /** Runs on each new channel before any call is sent. It must finish with `ready` or `refuse`. */
  protected abstract handshake(handshake: Handshake): void;

  /** Receives a notification that belongs to no call. */
  protected abstract notified(message: ServerMessage): void;

  /** Receives a server request that belongs to no call. */
  protected abstract asked(question: Question): void;

  protected abstract canDeliverQuestions(): boolean;

  protected abstract lost(loss: ConnectionLoss): void;

  get ownsProcess(): boolean {
    return this.target.config.stdio !== undefined && this.#channel !== undefined;
  }

  get pendingCalls(): number {
    return this.#calls.size + this.#waiting.length;
  }

  /** The reason completes the sentence "target x …". */
  get lossReason(): string | undefined {
    return this.#loss?.reason;
  }

  get isBackingOff(): boolean {
    return this.#state !== "up" && this.#backoff.remainingMs(this.#options.clock.monotonicMs()) > 0;
  }

  detail(): Record<string, unknown> {
    return {
      target: this.target.name,
      state: this.#state,
      pendingCalls: this.pendingCalls,
      ...(this.#loss && this.#state !== "up" ? { lastError: this.#loss.reason, stderr: this.#loss.stderr } : {}),
      ...this.#channel?.detail(),
    };
  }

  reconnect(wire?: WireTap): void {
    if (this.#state !== "down" && this.#state !== "parked") return;
    this.#wire = wire;
    this.#state = "connecting";
    const delayMs = this.#backoff.remainingMs(this.#options.clock.monotonicMs());
    if (delayMs > 0) this.#reconnectTimer = this.#options.clock.after(delayMs, () => this.#open());
    else this.#open();
  }

  /** Releases an idle connection until the next call. Returns undefined if the connection is in use or not up. */
  park(): Promise<void> | undefined {
    const isBusy = this.#waiting.length > 0 || this.#calls.all().some((pending) => !pending.isSubscription);
    if (!this.ownsProcess || this.#state !== "up" || isBusy || this.#hasOpenQuestions) return undefined;
    const channel = this.#disconnect(this.#failure("is parked"));
    this.#state = "parked";
    this.#backoff.reset();
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
    const channel = this.#disconnect(this.#failure("is closed"));
    this.#state = "closed";
    return channel?.close() ?? Promise.resolve();
  }

  #open(): void {
    this.#reconnectTimer = undefined;
    const handlers: ChannelHandlers = {
      message: (message, about) => {
        if (!this.#isCurrent(handlers)) return;
        try {
          this.#received(message, about);
        } catch (error) {
          this.#owner.reportDefect(error);
        }
      },
      failed: (wireId, reason, error) => {
        if (this.#isCurrent(handlers)) this.#calls.take(wireId)?.fail(this.#failure(reason, error));
      },
      expired: (wireId) => {
        if (this.#isCurrent(handlers)) this.#reopenSession(wireId);
      },
      closed: (reason) => {
        if (this.#isCurrent(handlers)) this.#lost(reason);
      },
    };
    this.#current = handlers;
    this.#cancelConnect = this.#options.connect(
      handlers,
      (channel, started) => {
        this.#cancelConnect = undefined;
        this.#channel = channel;
        this.#started = started;
        this.handshake(this.#handshake(handlers));
      },
      (reason, error) => this.#lost(reason, error),
    );
  }

  #isCurrent(handlers: ChannelHandlers): boolean {
    return this.#current === handlers && this.#state !== "closed";
  }

  #handshake(handlers: ChannelHandlers): Handshake {
    const prefix = this.#failure("").message;
    return {
      setProtocol: (protocol, version) => this.#channel?.setProtocol(protocol, version),
      request: (method, params, done) => {
        if (!this.#isCurrent(handlers)) return;
        this.#sendInternal(method, params, {
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
        this.#backoff.connected(this.#options.clock.monotonicMs());
        this.#options.up();
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

  /**
   * Handles a session that the server dropped. The request that revealed the loss is sent again at most once, to avoid
   * a loop.
   */
  #reopenSession(wireId: number | undefined): void {
    const found = wireId === undefined ? undefined : this.#calls.take(wireId);
    this.#options.logger.info("MCP server lost the session", { target: this.target.name });
    const mayRepeat = found !== undefined && !found.wasRepeated && this.#state === "up";
    const channel = this.#disconnect(this.#failure("lost the session"));
    this.#state = "down";
    void channel?.close();
    if (!mayRepeat) {
      found?.fail(this.#failure("lost the session"));
      return;
    }
    found.wireId = 0;
    found.wasRepeated = true;
    this.#waiting.push(found);
    this.reconnect();
  }

  #lost(reason: string, error: ServerError | LoginRequired = "backend_unavailable"): void {
    this.#backoff.lost(this.#options.clock.monotonicMs(), this.#state === "up");
    // A missing login is not a failure of the server, so it is not logged as a warning.
    const { logger } = this.#options;
    const target = this.target.name;
    logger[typeof error === "object" ? "info" : "warn"]("MCP server failed", { target, reason });
    const channel = this.#disconnect(this.#failure(reason, error));
    this.#state = "down";
    this.#loss = { reason, error, failedStarts: this.#backoff.failedStarts, stderr: channel?.stderrTail?.() ?? [] };
    void channel?.close();
    this.lost(this.#loss);
  }

  /** Fails all calls, withdraws all server requests, and detaches the channel. The caller must close the channel. */
  #disconnect(failure: Failure): Channel | undefined {
    this.#current = undefined;
    this.#reconnectTimer?.cancel();
    this.#cancelConnect?.();
    this.#cancelConnect = undefined;
    this.#started?.();
    this.#started = undefined;
    const channel = this.#channel;
    this.#channel = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    const sent = this.#calls.takeAll();
    const questions = this.#questions;
    this.#questions = undefined;
    if (questions) for (const question of questions.values()) question.withdrawn?.(undefined);
    for (const pending of [...sent, ...waiting]) pending.fail(failure);
    return channel;
  }

  #failure(what: string, error?: ServerError | LoginRequired): Failure {
    return serverFailure(`target "${this.target.name}" ${what}`, error);
  }

  call(call: Call): CallHandle {
    const pending = new PendingCall(call, this.#options.clock.monotonicMs(), this.#owner);
    if (this.#state === "up") this.#begin(pending);
    else if (this.#state === "closed") pending.fail(this.#failure("is closed"));
    else if (this.#waiting.length >= MAX_WAITING)
      pending.fail(this.#failure("is not ready and has too many waiting requests", "overloaded"));
    else {
      // The handshake uses the headers of this request, because credentials in earlier ones may have expired.
      if (call.headers) this.#headers = this.#options.forwarded(call.headers);
      this.#waiting.push(pending);
      this.reconnect();
    }
    return pending;
  }

  protected sendNotification(text: string, method: string, wire?: WireTap): void {
    if (this.#state === "up") this.#send({ text, method, wire: watched(wire) });
  }

  sweep(nowMs: number): void {
    const timeoutMs = this.#options.requestTimeoutMs();
    for (const pending of [...this.#calls.all(), ...this.#waiting]) {
      if (!pending.isOverdue(nowMs, timeoutMs, this.#hasOpenQuestions)) continue;
      const failure = this.#failure(`did not respond within ${Math.round(timeoutMs / 1000)} s`, "backend_timeout");
      pending.cancel("timeout", failure);
      // `cancel` ignores internal requests, so they are removed from the table directly.
      if (!pending.isOver) this.#calls.take(pending.wireId);
      pending.fail(failure);
    }
  }

  readonly #owner: CallOwner = {
    cancel: (pending, reason) => {
      if (pending.isInternal) return;
      pending.isOver = true;
      if (pending.wireId !== 0) this.#cancelSent(pending, reason);
      else this.#waiting = this.#waiting.filter((waiting) => waiting !== pending);
    },
    reportDefect: (error) => {
      const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
      const { logger } = this.#options;
      const target = this.target.name;
      logger.error("cannot handle a message from an MCP server", { target, reason });
    },
  };

  #begin(pending: PendingCall): void {
    if (this.#channel?.isOverloaded === true) {
      pending.fail(this.#failure("does not read its input", "overloaded"));
      return;
    }
    const { request, headers } = pending.call;
    if (headers) this.#headers = this.#options.forwarded(headers);
    const wireId = this.#calls.add(pending);
    const isAlone = this.#calls.size === 1;
    const wire = this.#channel && pending.sentOver(this.#channel);
    this.#send({ text: textWithWireId(pending, wireId), wireId, method: request.method, wire, isAlone });
  }

  /** Sends a request that the gateway makes for itself. It is not queued behind client calls. */
  #sendInternal(method: string, params: string, receiver: Pick<Call, "answered" | "failed" | "wire">): void {
    const request = { kind: "request", text: "", idStart: 0, idEnd: 0, id: "0", method, params: {} } as const;
    const call: Call = {
      ...receiver,
      request,
      notified: (message) => this.notified(message),
      asked: (question) => this.asked(question),
    };
    const pending = new PendingCall(call, this.#options.clock.monotonicMs(), this.#owner, true);
    const wireId = this.#calls.add(pending);
    const wire = this.#channel && pending.sentOver(this.#channel);
    this.#send({ text: requestText(String(wireId), method, params), wireId, method, wire });
  }

  #cancelSent(pending: PendingCall, reason: string | undefined): void {
    this.#calls.take(pending.wireId);
    // `initialize` must not be canceled (2025-11-25, cancellation).
    if (pending.call.request.method === "initialize") return;
    const params = { requestId: pending.wireId, ...(reason === undefined ? {} : { reason }) };
    this.#channel?.abandon(pending.wireId);
    const method = "notifications/cancelled";
    this.#send({ text: notificationText(method, JSON.stringify(params)), method });
  }

  #send(message: Omit<Outgoing, "headers">): void {
    const headers = withBearerToken(this.#headers, this.#options.authorization?.());
    this.#channel?.send(headers === undefined ? message : { headers, ...message });
  }

  #received(message: ServerMessage, about: number | undefined): void {
    if (message.kind === "result" || message.kind === "error") this.#response(message, about);
    else if (message.kind === "request") this.#question(message, about);
    else this.#notification(message, about);
  }

  /** Drops unsolicited and duplicate responses, which match no call. */
  #response(message: ServerMessage, about: number | undefined): void {
    this.#calls.take(about ?? parseWireId(message))?.answer(message);
  }

  #notification(message: ServerMessage, about: number | undefined): void {
    if (message.method === "notifications/progress") this.#progress(message);
    else if (message.method === "notifications/cancelled") this.#withdrawQuestion(message);
    else {
      const subscription = find(message.text, 0, "params", "_meta", SUBSCRIPTION_ID);
      if (subscription !== undefined) this.#subscriptionEvent(message, subscription);
      else {
        const isLog = message.method === "notifications/message";
        const pending = about === undefined ? (isLog ? this.#onlyCall() : undefined) : this.#calls.get(about);
        if (pending === undefined) this.notified(message);
        else this.#notifyCall(pending, message);
      }
    }
  }

  #progress(message: ServerMessage): void {
    const token = find(message.text, 0, "params", "progressToken");
    const pending = token && this.#calls.get(Number(slice(message.text, token)));
    if (!token || pending?.progressToken === undefined) return;
    this.#notifyCall(pending, edited(message, [editAt(token, pending.progressToken)]));
  }

  #subscriptionEvent(message: ServerMessage, id: Span): void {
    const pending = this.#calls.get(Number(slice(message.text, id)));
    if (!pending) return;
    this.#notifyCall(pending, edited(message, [{ start: id.start, end: id.end, text: pending.call.request.id }]));
  }

  #notifyCall(pending: PendingCall, message: ServerMessage): void {
    pending.activityMs = this.#options.clock.monotonicMs();
    pending.call.notified(message);
  }

  /** Returns the pending call if there is exactly one. Subscriptions do not count. */
  #onlyCall(): PendingCall | undefined {
    return this.#calls.size - this.#calls.subscriptions === 1 ? this.#calls.newest() : undefined;
  }

  get #hasOpenQuestions(): boolean {
    return this.#questions !== undefined && this.#questions.size > 0;
  }

  #question(message: ServerMessage, about: number | undefined): void {
    const id = messageId(message) as string;
    // Pings check this connection, so the gateway responds to them.
    if (message.method === "ping") {
      this.#send({ text: `{"jsonrpc":"2.0","id":${id},"result":{}}` });
      return;
    }
    const question: Question = {
      message,
      method: message.method as string,
      withdrawn: undefined,
      answer: (outcome, wire) => {
        if (this.#questions?.get(id) !== question) return;
        this.#questions.delete(id);
        this.#calls.noteActivity(this.#options.clock.monotonicMs());
        this.#send({ text: `{"jsonrpc":"2.0","id":${id},${outcome}}`, wire: watched(wire) });
      },
    };
    this.#questions ??= new Map();
    if (this.#questions.size >= MAX_QUESTIONS) {
      this.#send({ text: `{"jsonrpc":"2.0","id":${id},"error":{"code":-32603,"message":"Too many open questions"}}` });
      return;
    }
    // A request with a reused id replaces the earlier request.
    this.#questions.get(id)?.withdrawn?.(undefined);
    this.#questions.set(id, question);
    const pending = about === undefined ? this.#onlyCall() : this.#calls.get(about);
    const chosen = pending ?? (this.canDeliverQuestions() ? undefined : this.#calls.newest());
    if (chosen === undefined) this.asked(question);
    else chosen.call.asked(question);
  }

  #withdrawQuestion(message: ServerMessage): void {
    const span = find(message.text, 0, "params", "requestId");
    const id = span && slice(message.text, span);
    const question = id === undefined ? undefined : this.#questions?.get(id);
    if (id === undefined || question === undefined) return;
    this.#questions?.delete(id);
    const reason = find(message.text, 0, "params", "reason");
    question.withdrawn?.(reason && slice(message.text, reason));
  }
}

function watched(wire: WireTap | undefined): WireTap | undefined {
  return wire?.isWatched === true ? wire : undefined;
}

class ReconnectBackoff {
  failedStarts = 0;
  #losses = 0;
  #connectedAtMs = 0;
  #retryAtMs = 0;

  /** Returns 0 or less if the next attempt may start now. */
  remainingMs(nowMs: number): number {
    return this.#losses > 0 ? this.#retryAtMs - nowMs : 0;
  }

  connected(nowMs: number): void {
    this.failedStarts = 0;
    this.#connectedAtMs = nowMs;
  }

  lost(nowMs: number, wasUp: boolean): void {
    this.#losses = wasUp && nowMs - this.#connectedAtMs > HEALTHY_MS ? 1 : this.#losses + 1;
    if (!wasUp) this.failedStarts += 1;
    this.#retryAtMs = nowMs + Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (this.#losses - 1));
  }

  reset(): void {
    this.#losses = 0;
  }
}

/** Replaces the id and the progress token with the wire id, because the tokens of different clients may collide. */
function textWithWireId(pending: PendingCall, wireId: number): string {
  const { request } = pending.call;
  const id = String(wireId);
  const meta = request.params._meta;
  const hasToken = typeof meta === "object" && meta !== null && "progressToken" in meta;
  const token = hasToken ? find(request.text, 0, "params", "_meta", "progressToken") : undefined;
  if (token === undefined) return withId(request, id);
  pending.progressToken = slice(request.text, token);
  return splice(request.text, [{ start: request.idStart, end: request.idEnd, text: id }, editAt(token, id)]);
}

function withBearerToken(
  headers: readonly string[] | undefined,
  token: string | undefined,
): readonly string[] | undefined {
  return token === undefined ? headers : [...(headers ?? []), "authorization", `Bearer ${token}`];
}
