/**
 * A remote server over streamable HTTP, of either era. Each message is a POST; answers come as JSON or as events
 * on the POST's own stream, which is resumed where the server allows it; the legacy era also has a session and a
 * general stream. A session that the server has forgotten is reported, so that it can be opened anew.
 */

import type { Clock } from "../../base/clock.ts";
import type { InOrderEvents } from "../../base/in-order.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { SseEvent } from "../../http/sse.ts";
import type { LoginRequired } from "../protocol/call.ts";
import type { Era } from "../protocol/era.ts";
import type { Channel, ChannelHandlers, Outgoing } from "./channel.ts";
import { afterTexts, bodyFailure, isBlank, readText, takeMessages } from "./http-answer.ts";
import { createExchange, endSession, type HttpExchange, noteEvent, protocolHeaders } from "./http-exchange.ts";
import { type BrokenMessage, reportBroken } from "./incoming.ts";
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
    // Calls are refused before it comes to this; what nobody waits for is left out.
    if (message.wireId === undefined && this.isClogged) return;
    const exchange = this.#begin(message.wireId);
    if (message.wireId === undefined) exchange.timer = this.#clock.after(ACCEPT_MS, () => this.#drop(exchange));
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
    for (const exchange of this.#exchanges) this.#goOn(exchange);
  }

  close(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#isClosed = true;
    for (const exchange of [...this.#exchanges]) this.#drop(exchange);
    if (this.#sessionId === undefined) return Promise.resolve();
    return endSession(this.#server, this.#clock, this.#protocolHeaders({ text: "" }));
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
      mayRead: () => this.#mayRead(exchange),
      afterParsing: (parsed: () => void) => afterTexts(exchange, parsed),
      end: () => afterTexts(exchange, () => this.#ended(exchange)),
      error: (reason: string) => afterTexts(exchange, () => this.#brokeOff(exchange, reason)),
    };
  }

  #mayRead({ texts }: HttpExchange): boolean {
    return !this.#isPaused && texts?.isBusy !== true;
  }

  #goOn(exchange: HttpExchange): void {
    if (this.#mayRead(exchange)) exchange.call?.resume();
  }

  #event(exchange: HttpExchange, event: SseEvent): void {
    noteEvent(exchange, event);
    if (event.event === "message" && event.data !== "") this.#read(exchange, event.data, ignore);
  }

  #read(exchange: HttpExchange, text: string, done: (problem: string | undefined) => void): void {
    const events = (): InOrderEvents => ({
      busy: ignore,
      idle: () => this.#goOn(exchange),
      failed: () => {
        exchange.call?.abort();
        this.#fail(exchange, "sent a message that could not be handled");
      },
      isOver: () => this.#isClosed || !this.#exchanges.has(exchange),
    });
    readText(exchange, text, events, (messages) =>
      done(takeMessages(exchange, messages, this.#handlers, (message) => this.#broken(exchange, message))),
    );
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
    const after = (problem: string | undefined): void => {
      if (exchange.isAnswered && (status < 400 || exchange.wireId !== undefined)) return;
      this.#fail(exchange, bodyFailure(this.#server, status, text, problem), login);
    };
    // Whatever the body says then: what helps is a login.
    if (login !== undefined || isBlank(text)) after(undefined);
    else this.#read(exchange, text, after);
  }

  #brokeOff(exchange: HttpExchange, reason: string): void {
    if (exchange.lastEventId === undefined || exchange.isAnswered) this.#fail(exchange, reason);
    else this.#ended(exchange);
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
    this.#get(this.#begin(undefined));
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
        mayRead: () => this.#mayRead(exchange),
        afterParsing: (parsed) => afterTexts(exchange, parsed),
        end: () => afterTexts(exchange, again),
        error: () => afterTexts(exchange, again),
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

  #begin(wireId: number | undefined): HttpExchange {
    const exchange = createExchange(wireId);
    this.#exchanges.add(exchange);
    return exchange;
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
