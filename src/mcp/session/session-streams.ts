/**
 * The event streams of one session: the general one, the answers that a client may come back for, and the events it
 * may have missed. Numbers go on where an earlier process may have given some, so that `Last-Event-ID` never means two
 * events.
 */
import type { MemoryAccount } from "../../base/memory-budget.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { sendJson } from "../aggregation/router.ts";
import { errorText, INTERNAL_ERROR } from "../protocol/json-rpc.ts";
import type { SessionPeers } from "../replicas/session-peers.ts";
import { EventLog, type EventPlace } from "./event-log.ts";
import { EventStream, type StreamOwner } from "./event-stream.ts";

/** Streams whose answer is complete but was not delivered are kept in the log only. */
const GENERAL_STREAM = 0;
const LOST = "the rest of this answer is not here any more, or the gateway was restarted; send the request again";
/** Streams that ended without an answer, whose clients may still ask for the rest. */
const KEPT_SILENT = 32;
/** As much as the log of events keeps. */
const MAX_UNHEARD = 256;
const MAX_UNHEARD_CHARS = 1024 * 1024;

/** What the streams need from their session. */
export interface StreamSession {
  readonly id: string;
  readonly nowMs: number;
  readonly primesStreams: boolean;
  /** Other replicas, where the client may listen instead. */
  readonly peers: Pick<SessionPeers, "isShared" | "listening" | "notListening" | "pass">;
  streamOpened(stream: EventStream): void;
  streamClosed(stream: EventStream): void;
  congested(isCongested: boolean): void;
}

export class SessionStreams implements StreamOwner {
  readonly general: EventStream;
  readonly log: EventLog;
  readonly account: MemoryAccount;
  readonly #session: StreamSession;
  readonly #unheard: Unheard;
  readonly #listeners = new Listeners(this);
  #resumable: Map<number, EventStream> | undefined = undefined;
  /** Numbers of streams whose request was cancelled: nothing is lost there. */
  #silent: readonly number[] = [];
  #next: number;

  /** `before`: no number up to this one is given. */
  constructor(session: StreamSession, account: MemoryAccount, before = 0) {
    this.account = account;
    this.log = new EventLog(account);
    this.#unheard = new Unheard(account);
    this.#session = session;
    this.general = new EventStream(GENERAL_STREAM, this, undefined, before);
    this.#next = before + 1;
  }

  /** A stream for the answers of one POST; `answers` is the id of the request, if it is one alone. */
  create(primeAfterMs?: number, answers?: string): EventStream {
    return new EventStream(this.#next++, this, primeAfterMs, 0, answers);
  }

  /** Something that belongs to no call, for wherever the client listens. */
  say(text: string): void {
    if (this.general.isConnected || !this.#session.peers.isShared) {
      this.general.event(text);
      return;
    }
    void this.#session.peers.pass(text).then((isHeard) => {
      if (isHeard) return;
      if (this.general.isConnected) this.general.event(text);
      else this.#unheard.push(text);
    });
  }

  /** The client listens to another replica now. */
  listensElsewhere(): void {
    for (const text of this.#unheard.take()) this.say(text);
  }

  /** The old transport: everything goes over the general stream. */
  openOnly(sink: ResponseReceiver, endpoint: string, closed: () => void): BackendRun {
    this.general.attach(sink);
    this.general.announce(endpoint);
    return {
      abort: () => {
        this.general.abort();
        closed();
      },
      resume: () => this.general.resume(),
    };
  }

  /** The rest of an answer that broke off, or that it is lost, or that there is none; undefined: not of an answer. */
  takeUp(sink: ResponseReceiver, after: EventPlace, lifeMs?: number): BackendRun | undefined {
    if (after.isLast || this.#silent.includes(after.stream)) return refuseFinished(sink);
    const resumed = this.find(after.stream);
    if (resumed === undefined) return this.#lost(sink, after);
    if (resumed.isComplete && this.log.after(after.stream, after.number).length === 0) return refuseFinished(sink);
    return this.#listeners.join(resumed, sink, after.number, lifeMs);
  }

  /** The process that had the answer is gone, or is another replica: nobody should wait for it here. */
  #lost(sink: ResponseReceiver, { stream, number, answers }: EventPlace): EventStream | undefined {
    if (stream === GENERAL_STREAM || answers === undefined) return undefined;
    const lost = new EventStream(stream, this, undefined, number, answers);
    lost.attach(sink);
    lost.last(errorText(answers, INTERNAL_ERROR, LOST));
    return lost;
  }

  /** The stream of an answer that is still open, or that is complete and only in the log. */
  find(number: number): EventStream | undefined {
    if (number === GENERAL_STREAM) return undefined;
    const open = this.#resumable?.get(number);
    if (open) return open;
    if (this.log.after(number, -1).length === 0) return undefined;
    const replay = new EventStream(number, this);
    replay.complete();
    return replay;
  }

  /** Connects a client to the general stream, after the event that it got last. */
  listen(sink: ResponseReceiver, after: EventPlace | undefined, lifeMs?: number): BackendRun {
    const number = after?.stream === GENERAL_STREAM ? after.number : undefined;
    const run = this.#listeners.join(this.general, sink, number, lifeMs);
    if (this.general.isConnected) for (const text of this.#unheard.take()) this.general.event(text);
    return run;
  }

  /** Called every now and then. */
  sweep(nowMs: number): void {
    this.log.expire(nowMs);
    this.#listeners.expire(nowMs);
  }

  /** Ends the connections that wait for something to happen. */
  disconnect(): void {
    this.#listeners.close();
    this.general.disconnect();
  }

  // What streams need to know.

  get nowMs(): number {
    return this.#session.nowMs;
  }

  get sessionHeader(): string | undefined {
    return this.#session.id;
  }

  get primesStreams(): boolean {
    return this.#session.primesStreams;
  }

  opened(stream: EventStream): void {
    if (stream === this.general) this.#session.peers.listening();
    this.#session.streamOpened(stream);
  }

  resumable(stream: EventStream): void {
    if (stream.number === GENERAL_STREAM || stream.isComplete) return;
    this.#resumable ??= new Map();
    this.#resumable.set(stream.number, stream);
  }

  closed(stream: EventStream): void {
    this.#session.streamClosed(stream);
    if (stream.isComplete && this.#resumable?.delete(stream.number)) this.#ended(stream.number);
    if (!this.#listeners.left(stream) && stream === this.general) this.#session.peers.notListening();
  }

  #ended(stream: number): void {
    if (this.log.after(stream, 0).length === 0) this.#silent = [...this.#silent, stream].slice(-KEPT_SILENT);
  }

  moved(from: EventStream, to: EventStream): void {
    this.#session.streamClosed(from);
    this.#session.streamOpened(to);
  }

  congested(isCongested: boolean): void {
    this.#session.congested(isCongested);
  }
}

/** What nobody listened to yet, while the client may begin to anywhere. */
class Unheard {
  readonly #account: MemoryAccount;
  #texts: string[] = [];
  #chars = 0;

  constructor(account: MemoryAccount) {
    this.#account = account;
  }

  push(text: string): void {
    if (!this.#account.tryGrow(text.length)) return;
    this.#texts.push(text);
    this.#chars += text.length;
    while (this.#texts.length > MAX_UNHEARD || (this.#chars > MAX_UNHEARD_CHARS && this.#texts.length > 0)) {
      const dropped = this.#texts.shift()?.length ?? 0;
      this.#chars -= dropped;
      this.#account.shrink(dropped);
    }
  }

  take(): readonly string[] {
    const texts = this.#texts;
    this.#account.shrink(this.#chars);
    this.#texts = [];
    this.#chars = 0;
    return texts;
  }
}

/** Connections that one stream may have at a time. */
const MAX_LISTENERS = 4;
/** When all are newer than this, the next one has to wait; otherwise the oldest, which may be dead, makes room. */
const ESTABLISHED_MS = 30_000;
const RETRY_AFTER_SECONDS = "30";
const STREAM_REJECTED = -32000;
const NO_CALL: BackendRun = { abort: () => undefined, resume: () => undefined };

/** One GET: its connection is the stream's own, or one that waits beside it. */
class Listener implements BackendRun {
  readonly stream: EventStream;
  readonly sinceMs: number;
  /** When the credential of its request expires. */
  readonly untilMs: number;
  holder: EventStream;

  constructor(stream: EventStream, sinceMs: number, untilMs: number) {
    this.stream = stream;
    this.holder = stream;
    this.sinceMs = sinceMs;
    this.untilMs = untilMs;
  }

  abort(): void {
    this.holder.abort();
  }

  resume(): void {
    this.holder.resume();
  }
}

export class Listeners {
  readonly #owner: StreamOwner;
  /** Oldest first, of all streams. */
  #all: Listener[] = [];

  constructor(owner: StreamOwner) {
    this.#owner = owner;
  }

  /** Connects a client to the stream, after the event that it got last. `lifeMs`: for how long it may listen. */
  join(
    stream: EventStream,
    sink: ResponseReceiver,
    after: number | undefined,
    lifeMs = Number.POSITIVE_INFINITY,
  ): BackendRun {
    const { nowMs } = this.#owner;
    const others = this.#of(stream);
    const oldest = others[0];
    if (oldest !== undefined && others.length >= MAX_LISTENERS) {
      if (nowMs - oldest.sinceMs < ESTABLISHED_MS) return refuseListener(sink);
      oldest.holder.disconnect();
    }
    const current = others.find(({ holder }) => holder === stream);
    if (current !== undefined && stream.isConnected) {
      current.holder = new EventStream(stream.number, this.#owner);
      stream.moveTo(current.holder);
    }
    // The connection of the POST itself, which the client has given up.
    stream.disconnect();
    const listener = new Listener(stream, nowMs, nowMs + lifeMs);
    this.#all.push(listener);
    stream.attach(sink, after);
    stream.begin();
    return listener;
  }

  /** A connection ended. True if it was not the stream's own, or if another took its place. */
  left(holder: EventStream): boolean {
    const gone = this.#all.find((one) => one.holder === holder);
    if (gone === undefined) return false;
    this.#all = this.#all.filter((one) => one !== gone);
    const { stream } = gone;
    if (holder !== stream) return true;
    const others = this.#of(stream);
    if (stream.isComplete) {
      // Each asks for the rest once more, and gets it from the log.
      for (const other of others) other.holder.disconnect();
      return false;
    }
    const next = others.at(-1);
    if (next === undefined) return false;
    next.holder.moveTo(stream);
    next.holder = stream;
    return true;
  }

  /** Ends those whose credential has expired: their clients come back with another one, or are refused. */
  expire(nowMs: number): void {
    for (const { holder } of this.#all.filter((one) => nowMs >= one.untilMs)) holder.disconnect();
  }

  /** Ends those that wait; the streams themselves are the caller's. */
  close(): void {
    const all = this.#all;
    this.#all = [];
    for (const { holder, stream } of all) if (holder !== stream) holder.disconnect();
  }

  #of(stream: EventStream): readonly Listener[] {
    return this.#all.filter((one) => one.stream === stream);
  }
}

/** The client has the last event already. Official clients take 405 as the end; after anything else they ask again. */
export function refuseFinished(sink: ResponseReceiver): BackendRun {
  const text = errorText(
    undefined,
    STREAM_REJECTED,
    "Method Not Allowed: this stream has ended, and its last event was sent",
  );
  sendJson(sink, 405, text, ["allow", "POST, DELETE"]);
  return NO_CALL;
}

function refuseListener(sink: ResponseReceiver): BackendRun {
  const text = errorText(
    undefined,
    STREAM_REJECTED,
    `Conflict: this session has ${MAX_LISTENERS} event streams already`,
  );
  sendJson(sink, 409, text, ["retry-after", RETRY_AFTER_SECONDS]);
  return NO_CALL;
}
