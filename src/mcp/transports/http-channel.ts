/**
 * A remote server over streamable HTTP, of either era. Each message is a POST; answers come as JSON or as events
 * on the POST's own stream, which is resumed where the server allows it; the legacy era also has a session and a
 * general stream. A session that the server has forgotten is reported, so that it can be opened anew.
 */
import type { HeaderList } from "../../lib/http/headers.ts";
import type { SseEvent } from "../../lib/http/sse.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { LoginRequired } from "../wire/call.ts";
import type { Era } from "../wire/era.ts";
import { wireIdOf } from "../wire/json-rpc.ts";
import type { Channel, ChannelHandlers, Outgoing } from "./channel.ts";
import { createExchange, FIRST_RETRY_MS, type HttpExchange, noteEvent, protocolHeaders } from "./http-exchange.ts";
import { type BrokenMessage, readServerText, reportBroken } from "./incoming.ts";
import type { RemoteServer } from "./remote-server.ts";
import { mayRepeat } from "./repeatable.ts";

/** Calls under way at one server for one session. */
const MAX_UNDER_WAY = 1_024;
const MAX_RESUMES = 10;

/** A notification or an answer of ours is accepted in this time or given up: nobody waits for it. */
const ACCEPT_MS = 30_000;

/** How long calls wait for the general stream to stand: what a server asks meanwhile would be lost. */
const GENERAL_STREAM_MS = 250;

export class HttpChannel implements Channel {
  readonly #server: RemoteServer;
  readonly #clock: Clock;
  readonly #handlers: ChannelHandlers;
  readonly #exchanges = new Set<HttpExchange>();
  #era: Era = "legacy";
  #version: string | undefined = undefined;
  #sessionId: string | undefined = undefined;
  #isPaused = false;
  #isClosed = false;
  #hasGeneralStream = false;
  #held: Outgoing[] | undefined = undefined;
  /** Of the last message: the general stream and the end of the session go with them too. */
  #headers: readonly string[] = [];

  constructor(server: RemoteServer, clock: Clock, handlers: ChannelHandlers) {
    this.#server = server;
    this.#clock = clock;
    this.#handlers = handlers;
  }

  get address(): string {
    return this.#server.address;
  }

  get isClogged(): boolean {
    return this.#exchanges.size > MAX_UNDER_WAY;
  }

  speak(era: Era, version: string): void {
    this.#era = era;
    this.#version = version;
  }

  send(message: Outgoing): void {
    // In the modern era the end of a stream is the cancellation, and there is nothing else to tell.
    if (this.#isClosed || (this.#era === "modern" && message.method === "notifications/cancelled")) return;
    if (this.#held) {
      this.#held.push(message);
      return;
    }
    if (message.method === "notifications/initialized" && !this.#hasGeneralStream) this.#hold();
    const exchange = createExchange(message.wireId);
    // Calls are refused before it comes to this; what nobody waits for is left out.
    if (message.wireId === undefined) {
      if (this.isClogged) return;
      exchange.timer = this.#clock.after(ACCEPT_MS, () => this.#drop(exchange));
    }
    this.#exchanges.add(exchange);
    if (message.headers) this.#headers = message.headers;
    const headers = [
      "content-type",
      "application/json",
      "accept",
      "application/json, text/event-stream",
      ...this.#protocolHeaders(message),
    ];
    exchange.call = this.#server.send(
      { method: "POST", headers, body: message.text, wire: message.wire, mayRepeat: mayRepeat(message.method) },
      this.#reader(exchange, message),
    );
  }

  abandon(wireId: number): void {
    for (const exchange of this.#exchanges) if (exchange.wireId === wireId) this.#drop(exchange);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    for (const { call } of this.#exchanges) call?.resume();
  }

  close(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#isClosed = true;
    for (const exchange of [...this.#exchanges]) this.#drop(exchange);
    if (this.#sessionId === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      // The server may free its session; whether it does is not waited for long.
      const timer = this.#clock.after(FIRST_RETRY_MS, resolve);
      const done = (): void => {
        timer.cancel();
        resolve();
      };
      this.#server.send(
        { method: "DELETE", headers: this.#protocolHeaders({ text: "" }) },
        { head: ignore, event: ignore, body: ignore, mayRead: () => true, end: done, error: done },
      );
    });
  }

  detail(): Record<string, unknown> {
    return { address: this.address, era: this.#era, underWay: this.#exchanges.size };
  }

  #protocolHeaders(message: Outgoing): string[] {
    return protocolHeaders(message, this.#headers, this.#era, this.#version, this.#sessionId);
  }

  #reader(exchange: HttpExchange, message: Outgoing) {
    let status = 0;
    let login: LoginRequired | undefined;
    return {
      head: (code: number, headers: HeaderList) => {
        status = code;
        login = this.#server.loginOf(code, headers);
        const session = headers.get("mcp-session-id");
        if (message.method === "initialize" && session !== undefined) this.#sessionId = session;
        if (message.method !== "notifications/initialized") return;
        if (code < 300) this.#openGeneralStream();
        else this.#release();
      },
      event: (event: SseEvent) => this.#event(exchange, event),
      body: (text: string) => this.#body(exchange, status, text, login),
      mayRead: () => !this.#isPaused,
      end: () => this.#ended(exchange),
      error: (reason: string) => {
        if (exchange.lastEventId === undefined || exchange.isAnswered) this.#fail(exchange, reason);
        else this.#ended(exchange);
      },
    };
  }

  #event(exchange: HttpExchange, event: SseEvent): void {
    noteEvent(exchange, event);
    if (event.event === "message" && event.data !== "") this.#message(exchange, event.data);
  }

  /** Returns why there is no answer in it; undefined where nothing is wrong. */
  #message(exchange: HttpExchange, text: string): string | undefined {
    const messages = readServerText(text);
    let problem = messages.length === 0 ? "did not send a JSON-RPC message" : undefined;
    for (const message of messages) {
      if (message.kind === "broken") {
        problem = message.reason;
        this.#broken(exchange, message);
      } else if (message.kind === "request" || message.kind === "notification")
        this.#handlers.message(message, exchange.wireId);
      // Its own answer is all that the stream of a request may bring; other calls have theirs.
      else if (exchange.wireId !== undefined && wireIdOf(message) !== exchange.wireId)
        problem = "answered under an id that is not the request's";
      else {
        exchange.isAnswered = true;
        this.#handlers.message(message, exchange.wireId);
      }
    }
    return problem;
  }

  #broken(exchange: HttpExchange, message: BrokenMessage): void {
    if (message.wireId > 0 && message.wireId === exchange.wireId) {
      this.#fail(exchange, message.reason);
      exchange.call?.abort();
    } else if (exchange.wireId === undefined || message.wireId === 0)
      reportBroken(message, this.#handlers, (answer) => this.send(answer));
  }

  #body(exchange: HttpExchange, status: number, text: string, login: LoginRequired | undefined): void {
    if (status === 404 && this.#era === "legacy" && this.#sessionId !== undefined) {
      this.#expired(exchange);
      return;
    }
    // Whatever the body says then: what helps is a login.
    const problem = login !== undefined || text.trim() === "" ? undefined : this.#message(exchange, text);
    if (exchange.isAnswered && (status < 400 || exchange.wireId !== undefined)) return;
    const said = this.#server.shown(text.trim()).slice(0, 200);
    const reason = status < 300 ? (problem ?? "sent no response") : `answered with status ${status}`;
    this.#fail(exchange, status < 300 || said === "" ? reason : `${reason}: ${said}`, login);
  }

  /** An answer may be cut off on purpose and asked for again (2025-11-25, transports). */
  #ended(exchange: HttpExchange): void {
    if (exchange.isAnswered || exchange.wireId === undefined) {
      this.#forget(exchange);
      return;
    }
    if (exchange.lastEventId === undefined || this.#era === "modern" || exchange.resumes >= MAX_RESUMES)
      this.#fail(exchange, "ended its response early");
    else {
      exchange.resumes += 1;
      exchange.timer = this.#clock.after(exchange.retryMs, () => this.#get(exchange));
    }
  }

  #hold(): void {
    this.#held = [];
    this.#clock.after(GENERAL_STREAM_MS, () => this.#release());
  }

  #release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const message of held) this.send(message);
  }

  #openGeneralStream(): void {
    if (this.#hasGeneralStream || this.#isClosed || this.#era === "modern") return;
    this.#hasGeneralStream = true;
    const exchange = createExchange(undefined);
    this.#exchanges.add(exchange);
    this.#get(exchange);
  }

  #get(exchange: HttpExchange): void {
    if (this.#isClosed || !this.#exchanges.has(exchange)) return;
    const isGeneral = exchange.wireId === undefined;
    let isOpen = false;
    const headers = ["accept", "text/event-stream", ...this.#protocolHeaders({ text: "" })];
    if (exchange.lastEventId !== undefined) headers.push("last-event-id", exchange.lastEventId);
    const again = (): void => {
      if (!isGeneral) {
        this.#ended(exchange);
        return;
      }
      // Many servers have no general stream and say so; one that had it is asked again.
      this.#release();
      if (!isOpen || this.#isClosed) this.#exchanges.delete(exchange);
      else exchange.timer = this.#clock.after(exchange.retryMs, () => this.#get(exchange));
    };
    exchange.call = this.#server.send(
      { method: "GET", headers },
      {
        head: (status) => {
          if (isGeneral) this.#release();
          isOpen = status === 200;
          if (!isOpen && !isGeneral) exchange.resumes = MAX_RESUMES;
        },
        event: (event) => this.#event(exchange, event),
        body: () => undefined,
        mayRead: () => !this.#isPaused,
        end: again,
        error: again,
      },
    );
  }

  /** The server forgot the session: the request was not looked at and may be sent again. */
  #expired(exchange: HttpExchange): void {
    this.#sessionId = undefined;
    this.#exchanges.delete(exchange);
    // The end of this body is not a failure of the request.
    exchange.isAnswered = true;
    this.#handlers.expired(exchange.wireId);
  }

  #fail(exchange: HttpExchange, reason: string, error?: LoginRequired): void {
    this.#forget(exchange);
    if (this.#isClosed || exchange.wireId === undefined || exchange.isAnswered) return;
    exchange.isAnswered = true;
    this.#handlers.failed(exchange.wireId, reason, error);
  }

  #forget(exchange: HttpExchange): void {
    this.#exchanges.delete(exchange);
    exchange.timer?.cancel();
  }

  #drop(exchange: HttpExchange): void {
    this.#forget(exchange);
    exchange.call?.abort();
  }
}

function ignore(): void {
  // Nothing of it matters.
}
