/**
 * Implements one server-sent event stream of a session. The last events of a session are logged, limited by number,
 * bytes, and age, so that a client can resume on another connection (`Last-Event-ID`).
 */
import type { Linked } from "../../base/linked-list.ts";
import type { MemoryAccount } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { HeaderList } from "../../http/headers.ts";
import { singleLine } from "../../json/json-text.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { sendJson } from "../aggregation/router.ts";
import { type Failure, failureHeaders } from "../protocol/call.ts";

const LAST_EVENT_ID = peerInput("client/mcp-event-id");

const MAX_EVENTS = 256;
const MAX_BYTES = 1024 * 1024;
const KEPT_MS = 60_000;

interface LoggedEvent {
  readonly stream: number;
  readonly number: number;
  /** The end of the event's id (`eventSuffix`). */
  readonly suffix: string;
  /** The pieces of the event. A large event is not joined, because that would block the event loop. */
  readonly pieces: readonly Buffer[];
  readonly atMs: number;
}

export function totalBytes(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

export class EventLog {
  readonly #account: MemoryAccount;
  #events: LoggedEvent[] = [];
  #bytes = 0;

  constructor(account: MemoryAccount) {
    this.#account = account;
  }

  get size(): number {
    return this.#events.length;
  }

  /**
   * If the client's memory budget is exhausted, older events are dropped. If that is not enough, this event is not
   * logged.
   */
  append(event: LoggedEvent): void {
    const length = totalBytes(event.pieces);
    // A single event may exceed `MAX_BYTES`, because it may be a response.
    while (this.#events.length > 0 && (this.#events.length >= MAX_EVENTS || this.#bytes + length > MAX_BYTES)) {
      this.#drop();
    }
    while (!this.#account.tryGrow(length)) {
      if (this.#events.length === 0) return;
      this.#drop();
    }
    this.#events.push(event);
    this.#bytes += length;
  }

  #drop(): void {
    const length = totalBytes((this.#events.shift() as LoggedEvent).pieces);
    this.#bytes -= length;
    this.#account.shrink(length);
  }

  /** Returns the events oldest first. */
  after(stream: number, suffix: string, number: number): LoggedEvent[] {
    return this.#events.filter((event) => event.stream === stream && event.number > number && event.suffix === suffix);
  }

  expire(nowMs: number): void {
    const first = this.#events[0];
    if (first === undefined || nowMs - first.atMs < KEPT_MS) return;
    this.#events = this.#events.filter((event) => nowMs - event.atMs < KEPT_MS);
    const bytes = this.#events.reduce((sum, event) => sum + totalBytes(event.pieces), 0);
    this.#account.shrink(this.#bytes - bytes);
    this.#bytes = bytes;
  }
}

const EVENT_ID = /^(\d{1,15})-(\d{1,15})(e?)(?:-(?:n(-?\d{1,15})|s([\w-]{1,160})))?$/;
const WHOLE_NUMBER = /^-?\d{1,15}$/;
/** Longer request ids are omitted from event ids. */
const MAX_ID_CHARS = 100;

export interface EventPlace {
  readonly stream: number;
  readonly number: number;
  /** Marks the last event of a stream, after which there is nothing to resume. */
  readonly isLast?: true;
  /**
   * The id of the stream's only request as JSON, so that a process without the stream can send an error for it.
   */
  readonly answers?: string;
}

/** Returns an empty string for ids that event ids cannot contain. */
export function eventSuffix(answers: string | undefined): string {
  if (answers === undefined || answers.length > MAX_ID_CHARS) return "";
  if (WHOLE_NUMBER.test(answers)) return `-n${answers}`;
  if (!answers.startsWith('"')) return "";
  // The same id may have different escapes.
  const normalized = answers.includes("\\") ? quoted(answers) : answers;
  return normalized === undefined ? "" : `-s${Buffer.from(normalized).toString("base64url")}`;
}

export function eventId(stream: number, number: number, suffix = "", isLast = false): string {
  return `${stream}-${number}${isLast ? "e" : ""}${suffix}`;
}

export function parseEventId(text: string): EventPlace | undefined {
  const match = EVENT_ID.exec(text);
  if (match === null) return undefined;
  const answers = match[4] ?? (match[5] && quoted(Buffer.from(match[5], "base64url").toString()));
  return {
    stream: Number(match[1]),
    number: Number(match[2]),
    ...(match[3] ? { isLast: true } : {}),
    ...(answers ? { answers } : {}),
  };
}

function quoted(text: string): string | undefined {
  const value = tryReadJson(LAST_EVENT_ID, text);
  return typeof value === "string" ? JSON.stringify(value) : undefined;
}

/** Keep-alive comments prevent proxies from closing an idle connection. */
export const KEEP_ALIVE_MS = 15_000;
/** If a response takes longer, its head is sent first. */
const PRIME_AFTER_MS = 100;
/** Sent to clients as the delay before they reconnect. */
const RETRY_MS = 1_000;
/** Pauses the server while more bytes than this are queued for a slow client. */
const PAUSE_BYTES = 1024 * 1024;
/** Disconnects a client for which more bytes than this are queued. */
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;

const END_OF_EVENT = Buffer.from("\n\n");
const KEEP_ALIVE = Buffer.from(": keep-alive\n\n");

export interface StreamOwner {
  readonly log: EventLog;
  readonly account: MemoryAccount;
  readonly nowMs: number;
  readonly sessionHeader: string | undefined;
  readonly primesStreams: boolean;
  opened(stream: EventStream): void;
  resumable(stream: EventStream): void;
  closed(stream: EventStream): void;
  moved(from: EventStream, to: EventStream): void;
  congested(isCongested: boolean): void;
}

export class EventStream implements BackendRun, Heartbeat {
  next: Heartbeat | undefined = undefined;
  previous: Heartbeat | undefined = undefined;
  /** The number 0 identifies the general stream. */
  readonly number: number;
  readonly #owner: StreamOwner;
  readonly #primeAfterMs: number;
  /** The end of the event ids, which identifies the request. */
  readonly suffix: string;
  #sink: ResponseReceiver | undefined = undefined;
  #hasHead = false;
  #isComplete = false;
  /** True if an event was sent or logged, so that a client may resume the stream. */
  #isResumable = false;
  #lastEvent: number;
  #lastSent: number;
  #queue: (readonly Buffer[])[] | undefined = undefined;
  #queuedBytes = 0;
  #attachedMs = 0;
  #lastWriteMs = 0;

  /** Event numbers start after `before`. `answers` is the id of the only request that the stream responds to. */
  constructor(number: number, owner: StreamOwner, primeAfterMs = PRIME_AFTER_MS, before = 0, answers?: string) {
    this.number = number;
    this.suffix = eventSuffix(answers);
    this.#lastEvent = before;
    this.#lastSent = before;
    this.#owner = owner;
    this.#primeAfterMs = primeAfterMs;
  }

  get hasHead(): boolean {
    return this.#hasHead;
  }

  get isConnected(): boolean {
    return this.#sink !== undefined;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /**
   * Connects a client and sends all logged events after `after`. Without `after`, it sends the events that were not
   * sent yet.
   */
  attach(sink: ResponseReceiver, after?: number): void {
    this.disconnect();
    this.#sink = sink;
    this.#hasHead = false;
    this.#attachedMs = this.#owner.nowMs;
    this.#lastWriteMs = this.#attachedMs;
    this.#owner.opened(this);
    const missed = this.#owner.log.after(this.number, this.suffix, after ?? this.#lastSent);
    for (const event of missed) this.#write(event.pieces);
    this.#lastSent = this.#lastEvent;
    if (this.#isComplete) this.#finish();
  }

  /** Sends the head before the first event, so that the client can see that the stream is open. */
  begin(): void {
    if (this.#hasHead || this.#sink === undefined) return;
    this.#head();
    if (!this.#owner.primesStreams) this.#write([Buffer.from(": \n\n")]);
    else {
      const id = this.#nextId();
      this.#lastSent = this.#lastEvent;
      this.#isResumable = true;
      this.#owner.resumable(this);
      this.#write([Buffer.from(`${id}retry: ${RETRY_MS}\ndata: \n\n`)]);
    }
  }

  announce(endpoint: string): void {
    this.#write([Buffer.from(`event: endpoint\ndata: ${endpoint}\n\n`)]);
  }

  /** Byte chunks must not contain line breaks. */
  event(json: string | readonly Buffer[]): void {
    const pieces = this.#encode(json, this.#nextId());
    this.#log(pieces);
    if (this.#sink === undefined) return;
    this.#lastSent = this.#lastEvent;
    this.#write(pieces);
  }

  /** Sends the last event. It has no id if it is the whole response to a connected client. */
  last(json: string | readonly Buffer[]): void {
    this.#isComplete = true;
    if (this.#lastEvent > 0 || this.#sink === undefined || this.#hasHead) {
      const pieces = this.#encode(json, this.#nextId(true));
      this.#log(pieces);
      this.#lastSent = this.#lastEvent;
      this.#write(pieces);
      this.#finish();
      return;
    }
    const pieces = this.#encode(json, "");
    const sink = this.#detach() as ResponseReceiver;
    this.#hasHead = true;
    const headers = eventStreamHeaders(this.#owner.sessionHeader);
    headers.add("content-length", String(totalBytes(pieces)));
    sink.head(200, headers);
    for (const piece of pieces) sink.data(piece);
    sink.end();
  }

  /** Ends the stream with an error status, or with an error event if a status can no longer be sent. */
  refuse(failure: Failure, json: string): void {
    if (this.#hasHead || this.#lastEvent > 0 || this.#sink === undefined) {
      this.last(json);
      return;
    }
    this.#isComplete = true;
    const sink = this.#detach() as ResponseReceiver;
    this.#hasHead = true;
    const { sessionHeader } = this.#owner;
    const session = sessionHeader === undefined ? [] : ["mcp-session-id", sessionHeader];
    sendJson(sink, failure.status, json, [...failureHeaders(failure), ...session]);
  }

  complete(): void {
    this.#isComplete = true;
    this.#finish();
  }

  beat(nowMs: number): void {
    if (this.#sink === undefined) return;
    if (!this.#hasHead && nowMs - this.#attachedMs >= this.#primeAfterMs) this.begin();
    else if (this.#hasHead && nowMs - this.#lastWriteMs >= KEEP_ALIVE_MS) this.#write([KEEP_ALIVE]);
  }

  disconnect(): void {
    const hadHead = this.#hasHead;
    const sink = this.#detach();
    if (sink === undefined) return;
    if (!hadHead) this.#sendHead(sink);
    sink.end();
  }

  moveTo(other: EventStream): void {
    other.#sink = this.#sink;
    other.#hasHead = this.#hasHead;
    other.#queue = this.#queue;
    other.#queuedBytes = this.#queuedBytes;
    other.#lastWriteMs = this.#lastWriteMs;
    this.#sink = undefined;
    this.#queue = undefined;
    this.#queuedBytes = 0;
    this.#owner.moved(this, other);
  }

  /** Handles the disconnection of the client. Later events are only logged. */
  abort(): void {
    this.#detach();
  }

  resume(): void {
    const queue = this.#queue;
    if (queue === undefined) return;
    this.#emptyQueue();
    for (const pieces of queue) this.#write(pieces);
    if (this.#isComplete) this.#finish();
  }

  #nextId(isLast = false): string {
    this.#lastEvent += 1;
    return `id: ${eventId(this.number, this.#lastEvent, this.suffix, isLast)}\n`;
  }

  #encode(json: string | readonly Buffer[], id: string): readonly Buffer[] {
    const head = `event: message\n${id}data: `;
    return typeof json === "string"
      ? [Buffer.from(`${head}${singleLine(json)}\n\n`)]
      : [Buffer.from(head), ...json, END_OF_EVENT];
  }

  #log(pieces: readonly Buffer[]): void {
    const { number: stream, suffix } = this;
    this.#owner.log.append({ stream, number: this.#lastEvent, suffix, pieces, atMs: this.#owner.nowMs });
    if (!this.#isResumable) {
      this.#isResumable = true;
      this.#owner.resumable(this);
    }
  }

  #write(pieces: readonly Buffer[]): void {
    if (this.#sink === undefined) return;
    if (!this.#hasHead) this.#head();
    this.#lastWriteMs = this.#owner.nowMs;
    if (this.#queue === undefined) {
      if (!sendPieces(this.#sink, pieces)) this.#queue = [];
      return;
    }
    const bytes = totalBytes(pieces);
    // The limit is checked before adding, because a single message may exceed it.
    if (this.#queuedBytes > MAX_QUEUED_BYTES || !this.#owner.account.tryGrow(bytes)) {
      this.#detach()?.fail(new Error("the client reads too slowly"));
      return;
    }
    this.#queue.push(pieces);
    this.#queuedBytes += bytes;
    if (this.#queuedBytes > PAUSE_BYTES) this.#owner.congested(true);
  }

  #finish(): void {
    if (this.#queue !== undefined && this.#queue.length > 0) return;
    const sink = this.#detach();
    if (sink === undefined) {
      this.#owner.closed(this);
      return;
    }
    if (!this.#hasHead) this.#sendHead(sink);
    sink.end();
  }

  #detach(): ResponseReceiver | undefined {
    const sink = this.#sink;
    if (sink === undefined) return undefined;
    this.#sink = undefined;
    if (this.#queue !== undefined) this.#emptyQueue();
    this.#owner.closed(this);
    return sink;
  }

  #emptyQueue(): void {
    this.#owner.account.shrink(this.#queuedBytes);
    this.#queue = undefined;
    this.#queuedBytes = 0;
    this.#owner.congested(false);
  }

  #head(): void {
    if (this.#sink) this.#sendHead(this.#sink);
  }

  #sendHead(sink: ResponseReceiver): void {
    this.#hasHead = true;
    sink.head(200, eventStreamHeaders(this.#owner.sessionHeader));
  }
}

/** Returns false if the client should not be sent more. */
export function sendPieces(sink: ResponseReceiver, pieces: readonly Buffer[]): boolean {
  let hasRoom = true;
  for (const piece of pieces) hasRoom = sink.data(piece);
  return hasRoom;
}

/** `x-accel-buffering` disables buffering in nginx and compatible proxies. */
const COMMON = [
  "content-type",
  "text/event-stream",
  "cache-control",
  "no-cache, no-transform",
  "x-accel-buffering",
  "no",
];

export function eventStreamHeaders(sessionId: string | undefined): HeaderList {
  const headers = new HeaderList(COMMON.slice(), true);
  if (sessionId !== undefined) headers.add("mcp-session-id", sessionId);
  return headers;
}

export interface Heartbeats {
  startHeartbeat(stream: Heartbeat): void;
  stopHeartbeat(stream: Heartbeat): void;
}

export interface Heartbeat extends Linked<Heartbeat> {
  beat(nowMs: number): void;
  /** Ends a stream that does not end by itself. */
  drain?(): void;
}
