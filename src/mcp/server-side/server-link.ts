/**
 * The gateway as a client of one server: a connection, and what is said over it. When it is lost, calls in flight fail at
 * once; the next call brings it up again, with growing pauses, and the owner repeats its handshake.
 */

import type { Timer } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import {
  type Call,
  type Failure,
  type LoginRequired,
  type Running,
  type ServerError,
  serverFailure,
} from "../protocol/call.ts";
import { notificationText } from "../protocol/json-rpc.ts";
import type { Channel, ChannelHandlers, Outgoing } from "../transports/channel.ts";
import { Conversation } from "./conversation.ts";
import { type Handshaking, type LinkEnv, type LinkOwner, type Loss, withToken } from "./link-contract.ts";
import { PendingCall, type PendingCallEnv } from "./pending-call.ts";
import { ReconnectPauses } from "./reconnect-pauses.ts";

const MAX_WAITING = 1_000;

export class ServerLink {
  readonly #env: LinkEnv;
  readonly #owner: LinkOwner;
  readonly #conversation: Conversation;
  readonly #pendingEnv: PendingCallEnv;
  #waiting: PendingCall[] = [];
  #channel: Channel | undefined = undefined;
  /** The connection in force: what an older one still reports is ignored. */
  #current: ChannelHandlers | undefined = undefined;
  #state: "down" | "parked" | "connecting" | "up" | "closed" = "down";
  /** Of the last request: handshakes and notifications of ours go with them too. */
  #headers: readonly string[] | undefined;
  readonly #pauses = new ReconnectPauses();
  #timer: Timer | undefined = undefined;
  #leaveLine: (() => void) | undefined = undefined;
  #started: (() => void) | undefined = undefined;
  #loss: Loss | undefined = undefined;
  /** Of the client's request that opens the connection: the handshake is what is sent for it. */
  #wire: WireTap | undefined = undefined;

  constructor(env: LinkEnv, owner: LinkOwner, headers?: HeaderList) {
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
  get isResting(): boolean {
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

  call(call: Call): Running {
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

  #handshaking(handlers: ChannelHandlers): Handshaking {
    const prefix = this.#failure("").message;
    return {
      speak: (era, version) => this.#channel?.speak(era, version),
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
    if (this.#channel?.isClogged === true) {
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
    this.#loss = { reason, error, failedStarts: this.#pauses.failedStarts, stderr: channel?.lastWords?.() ?? [] };
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
