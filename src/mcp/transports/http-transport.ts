/**
 * Implements the streamable HTTP transport for 2025 and 2026-07-28 servers. The channel reports a
 * session that the server dropped, so that the owner can open a new one.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { InOrder, type InOrderEvents } from "../../base/in-order.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish, SLICED_BYTES } from "../../base/sliced-work.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";
import type { HttpCall } from "../../http/http-client.ts";
import type { SseEvent } from "../../http/sse.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import type { LoginRequired } from "../protocol/call.ts";
import { parseWireId } from "../protocol/json-rpc.ts";
import { MIRRORED, mirrorHeader } from "../protocol/mirror-headers.ts";
import type { McpProtocol } from "../protocol/protocol-version.ts";
import type { OneWayMessage, OneWayQueue } from "./one-way-queue.ts";
import { MAX_ERROR_BODY_CHARS, type RemoteServer } from "./remote-server.ts";
import { type BrokenMessage, type ParsedMessages, parseServerTextInSteps, reportBroken } from "./server-messages.ts";
import { type Channel, type ChannelHandlers, type Outgoing, TOO_MANY_REQUESTS } from "./transport.ts";

const PART = peerInput("client/mcp-part");
const MESSAGE = peerInput("mcp-server/http-response");

const MAX_EXCHANGES = 1_024;
const MAX_RESUMES = 10;

/** Limits how long a POST without a response message, such as a notification, may take. */
const ACCEPT_MS = 30_000;

/**
 * Limits how long messages wait for the general stream. A server may drop its requests to the client while that stream
 * is not open.
 */
const GENERAL_STREAM_MS = 250;

export class HttpChannel implements Channel {
  readonly #server: RemoteServer;
  readonly #clock: Clock;
  readonly #handlers: ChannelHandlers;
  readonly #exchanges = new Set<HttpExchange>();
  /** The responses to the server's requests. */
  readonly #answers: OneWayQueue;
  /** A server that floods the gateway with requests does not delay these messages, such as cancellations. */
  readonly #notifications: OneWayQueue;
  /** Called after `close`, when the last message without a response is sent. */
  #allSent: (() => void) | undefined = undefined;
  #protocol: McpProtocol = "2025";
  #version: string | undefined = undefined;
  #sessionId: string | undefined = undefined;
  #isPaused = false;
  #isClosed = false;
  #hasGeneralStream = false;
  #held: Outgoing[] | undefined = undefined;
  /** The additional headers of the last message that had any. Later requests send them too. */
  #headers: readonly string[] = [];

  constructor(server: RemoteServer, clock: Clock, handlers: ChannelHandlers) {
    this.#server = server;
    this.#clock = clock;
    this.#handlers = handlers;
    const send = (queued: OneWayMessage): void => this.#sendOneWay(queued);
    this.#answers = server.oneWayQueue("answers", send);
    this.#notifications = server.oneWayQueue("notifications", send);
  }

  get address(): string {
    return this.#server.address;
  }

  get isOverloaded(): boolean {
    return this.#exchanges.size + (this.#held?.length ?? 0) > MAX_EXCHANGES;
  }

  setProtocol(protocol: McpProtocol, version: string): void {
    this.#protocol = protocol;
    this.#version = version;
  }

  send(message: Outgoing): void {
    // In 2026-07-28, closing the stream cancels the request.
    if (this.#isClosed || (this.#protocol === "2026" && message.method === "notifications/cancelled")) return;
    if (this.#held) {
      if (message.wireId !== undefined || !this.isOverloaded) this.#held.push(message);
      return;
    }
    if (message.method === "notifications/initialized" && !this.#hasGeneralStream) this.#hold();
    if (message.wireId !== undefined) this.#post(this.#begin(message.wireId), message);
    else if (message.method !== undefined) this.#notifications.send(message);
    else if (!this.#answers.send(message)) this.#handlers.closed(TOO_MANY_REQUESTS);
  }

  #sendOneWay(queued: OneWayMessage): void {
    const exchange = this.#begin(undefined);
    exchange.oneWay = queued;
    exchange.timer = this.#clock.after(ACCEPT_MS, () => this.#drop(exchange));
    this.#post(exchange, queued.message);
  }

  #post(exchange: HttpExchange, message: Outgoing): void {
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
    this.#answers.close();
    for (const exchange of [...this.#exchanges]) if (exchange.oneWay === undefined) this.#drop(exchange);
    const end = (): Promise<void> => {
      if (this.#sessionId === undefined) return Promise.resolve();
      return endSession(this.#server, this.#clock, this.#protocolHeaders({ text: "" }));
    };
    return this.#hasSentAll ? end() : this.#lastSent().then(end);
  }

  get #hasSentAll(): boolean {
    return this.#answers.isEmpty && this.#notifications.isEmpty;
  }

  /** A message without a response, such as the cancellation of a call, reaches the server before the session ends. */
  #lastSent(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#clock.after(END_SESSION_MS, () => {
        this.#notifications.close();
        for (const exchange of [...this.#exchanges]) this.#drop(exchange);
      });
      this.#allSent = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  detail(): Record<string, unknown> {
    return { address: this.address, protocol: this.#protocol, underWay: this.#exchanges.size };
  }

  #protocolHeaders(message: Outgoing): string[] {
    return protocolHeaders(message, this.#headers, this.#protocol, this.#version, this.#sessionId);
  }

  #reader(exchange: HttpExchange, message: Outgoing) {
    let status = 0;
    let login: LoginRequired | undefined;
    return {
      head: (code: number, headers: HeaderList) => {
        status = code;
        login = this.#server.requiredLogin(code, headers);
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
    if (status === 404 && this.#protocol === "2025" && this.#sessionId !== undefined) {
      this.#expired(exchange);
      return;
    }
    const after = (problem: string | undefined): void => {
      if (exchange.isAnswered && (status < 400 || exchange.wireId !== undefined)) return;
      this.#fail(
        exchange,
        status < 300 ? (problem ?? "sent no response") : this.#server.rejection(status, text),
        login,
      );
    };
    // A required login takes precedence over the body.
    if (login !== undefined || isBlank(text)) after(undefined);
    else this.#read(exchange, text, after);
  }

  #brokeOff(exchange: HttpExchange, reason: string): void {
    if (exchange.lastEventId === undefined || exchange.isAnswered) this.#fail(exchange, reason);
    else this.#ended(exchange);
  }

  /**
   * A server may close the stream before it responds, and the client then resumes the stream (2025-11-25, transports).
   */
  #ended(exchange: HttpExchange): void {
    if (exchange.isAnswered || exchange.wireId === undefined) {
      this.#forget(exchange);
      return;
    }
    if (exchange.lastEventId === undefined || this.#protocol === "2026" || exchange.resumes >= MAX_RESUMES)
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
    if (this.#hasGeneralStream || this.#isClosed || this.#protocol === "2026") return;
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
      // Many servers have no general stream, so it is reopened only if it was open before.
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

  #expired(exchange: HttpExchange): void {
    this.#sessionId = undefined;
    this.#forget(exchange);
    // Marks the exchange as complete so that the end of this body does not fail the request.
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
    const { oneWay } = exchange;
    if (oneWay === undefined) return;
    (oneWay.message.method === undefined ? this.#answers : this.#notifications).release(oneWay);
    if (this.#hasSentAll) this.#allSent?.();
  }

  #drop(exchange: HttpExchange): void {
    this.#forget(exchange);
    exchange.call?.abort();
  }
}

function ignore(): void {
  // Some events need no reaction.
}

const FIRST_RETRY_MS = 1_000;
/** A server that ends its streams immediately is not polled at shorter intervals than this. */
const MIN_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;

interface HttpExchange {
  call: HttpCall | undefined;
  readonly wireId: number | undefined;
  /** Set if the exchange sends a message that has no response. */
  oneWay: OneWayMessage | undefined;
  isAnswered: boolean;
  lastEventId: string | undefined;
  retryMs: number;
  resumes: number;
  timer: Timer | undefined;
  texts: InOrder | undefined;
}

function createExchange(wireId: number | undefined): HttpExchange {
  return {
    call: undefined,
    wireId,
    oneWay: undefined,
    isAnswered: wireId === undefined,
    lastEventId: undefined,
    retryMs: FIRST_RETRY_MS,
    resumes: 0,
    timer: undefined,
    texts: undefined,
  };
}

/** A server that does not answer in this time would hold the connection, and the shutdown of the gateway. */
const END_SESSION_MS = 1_000;

/** Sends the DELETE that ends the session. */
function endSession(server: RemoteServer, clock: Clock, headers: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(END_SESSION_MS, () => {
      call.abort();
      resolve();
    });
    const done = (): void => {
      timer.cancel();
      resolve();
    };
    const ignore = (): void => undefined;
    const handler = { head: ignore, event: ignore, body: ignore, mayRead: () => true, end: done, error: done };
    const call = server.send({ method: "DELETE", headers }, handler);
  });
}

function noteEvent(exchange: HttpExchange, event: SseEvent): void {
  if (event.id !== undefined && isHeaderValue(event.id)) exchange.lastEventId = event.id;
  if (event.retry !== undefined) exchange.retryMs = Math.max(MIN_RETRY_MS, Math.min(MAX_RETRY_MS, event.retry));
}

function protocolHeaders(
  message: Outgoing,
  forwarded: readonly string[],
  protocol: McpProtocol,
  version: string | undefined,
  sessionId: string | undefined,
): string[] {
  const headers: string[] = [...forwarded];
  if (version !== undefined) headers.push("mcp-protocol-version", version);
  if (protocol === "2025") {
    if (sessionId !== undefined) headers.push("mcp-session-id", sessionId);
    return headers;
  }
  if (message.method !== undefined) headers.push("mcp-method", message.method);
  const member = message.method === undefined ? undefined : MIRRORED.get(message.method);
  const name = member && find(message.text, 0, "params", member);
  const value = name && readJson(PART, slice(message.text, name));
  if (typeof value === "string") headers.push("mcp-name", mirrorHeader(value));
  return headers;
}

function readText(
  exchange: HttpExchange,
  text: string,
  events: () => InOrderEvents,
  done: (messages: ParsedMessages) => void,
): void {
  const steps = parseServerTextInSteps(MESSAGE, text);
  const isSmall = text.length <= SLICED_BYTES;
  if (isSmall && exchange.texts === undefined) {
    done(finish(steps));
    return;
  }
  exchange.texts ??= new InOrder(events());
  exchange.texts.run(steps, isSmall, done);
}

function afterTexts({ texts }: HttpExchange, last: () => void): void {
  if (texts === undefined) last();
  else texts.afterwards(last);
}

function takeMessages(
  exchange: HttpExchange,
  messages: ParsedMessages,
  handlers: ChannelHandlers,
  broken: (message: BrokenMessage) => void,
): string | undefined {
  let problem = messages.length === 0 ? "did not send a JSON-RPC message" : undefined;
  for (const message of messages) {
    if (message.kind === "broken") {
      problem = message.reason;
      broken(message);
    } else if (message.kind === "request" || message.kind === "notification")
      handlers.message(message, exchange.wireId);
    // A stream must not carry the response to another request.
    else if (exchange.wireId !== undefined && parseWireId(message) !== exchange.wireId)
      problem = "answered under an id that is not the request's";
    else {
      exchange.isAnswered = true;
      handlers.message(message, exchange.wireId);
    }
  }
  return problem;
}

function isBlank(text: string): boolean {
  return text.length < MAX_ERROR_BODY_CHARS && text.trim() === "";
}

/** These methods are safe to send twice, so they are sent again if a pooled connection turns out to be closed. */
const REPEATABLE: ReadonlySet<string> = new Set([
  "initialize",
  "notifications/initialized",
  "ping",
  "server/discover",
  "tools/list",
  "prompts/list",
  "prompts/get",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "completion/complete",
]);

function mayRepeat(method: string | undefined): boolean {
  return method !== undefined && REPEATABLE.has(method);
}
