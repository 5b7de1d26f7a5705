/**
 * Manages the event streams of one session: the general stream and the response streams that a client may resume.
 */
import type { MemoryAccount } from "../../base/memory-budget.ts";
import type { BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { sendJson } from "../aggregation/router.ts";
import { errorText, INTERNAL_ERROR } from "../protocol/json-rpc.ts";
import type { SessionPeers } from "../replicas/session-peers.ts";
import {
  EventLog,
  type EventPlace,
  EventStream,
  eventSuffix,
  type Heartbeats,
  type StreamOwner,
} from "./event-stream.ts";

const GENERAL_STREAM = 0;
const LOST = "the rest of this response is no longer available, or the gateway was restarted; send the request again";
/** Limits the streams without a response that are remembered in case their clients resume them. */
const KEPT_SILENT = 32;
const MAX_UNDELIVERED = 256;
const MAX_UNDELIVERED_CHARS = 1024 * 1024;

export interface StreamSession {
  readonly id: string;
  readonly nowMs: number;
  readonly primesStreams: boolean;
  readonly peers: Pick<SessionPeers, "isShared" | "listening" | "notListening" | "deliver">;
  readonly heartbeats: Heartbeats;
  /** The session is idle from now on, unless it has other streams or calls. */
  streamClosed(): void;
  congested(isCongested: boolean): void;
}

export class SessionStreams implements StreamOwner {
  readonly general: EventStream;
  readonly log: EventLog;
  readonly account: MemoryAccount;
  readonly #session: StreamSession;
  readonly #undelivered: UndeliveredMessages;
  readonly #listeners = new Listeners(this);
  #resumable: Map<number, EventStream> | undefined = undefined;
  /** The completed streams without logged events, such as those of canceled requests. */
  #silent: readonly Pick<EventStream, "number" | "suffix">[] = [];
  #next: number;

  /** The event numbers of the general stream and the numbers of the other streams start after `before`. */
  constructor(session: StreamSession, account: MemoryAccount, before = 0) {
    this.account = account;
    this.log = new EventLog(account);
    this.#undelivered = new UndeliveredMessages(account);
    this.#session = session;
    this.general = new EventStream(GENERAL_STREAM, this, undefined, before);
    this.#next = before + 1;
  }

  /**
   * Creates a stream for the responses to one POST. `answers` is the id of the request if the POST contains only one.
   */
  create(primeAfterMs?: number, answers?: string): EventStream {
    return new EventStream(this.#next++, this, primeAfterMs, 0, answers);
  }

  send(text: string): void {
    if (this.general.isConnected || !this.#session.peers.isShared) {
      this.general.event(text);
      return;
    }
    void this.#session.peers.deliver(text).then((isDelivered) => {
      if (isDelivered) return;
      if (this.general.isConnected) this.general.event(text);
      else this.#undelivered.push(text);
    });
  }

  sendUndelivered(): void {
    for (const text of this.#undelivered.take()) this.send(text);
  }

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

  /**
   * Resumes the stream of a response, or responds with an error if that is no longer possible. Returns undefined if the
   * caller should use the general stream instead.
   */
  resumeResponse(sink: ResponseReceiver, after: EventPlace, lifeMs?: number): BackendRun | undefined {
    const suffix = eventSuffix(after.answers);
    const isSilent = this.#silent.some((one) => one.number === after.stream && one.suffix === suffix);
    if (after.isLast || isSilent) return refuseFinished(sink);
    const resumed = this.#find(after);
    if (resumed === undefined) return this.#lost(sink, after);
    if (resumed.isComplete && this.log.after(after.stream, suffix, after.number).length === 0)
      return refuseFinished(sink);
    return this.#listeners.join(resumed, sink, after.number, lifeMs);
  }

  #lost(sink: ResponseReceiver, { stream, number, answers }: EventPlace): EventStream | undefined {
    if (stream === GENERAL_STREAM || answers === undefined) return undefined;
    const lost = new EventStream(stream, this, undefined, number, answers);
    lost.attach(sink);
    lost.last(errorText(answers, INTERNAL_ERROR, LOST));
    return lost;
  }

  /**
   * Replicas that resume a session at the same time use the same stream numbers, so the request of the stream must also
   * match.
   */
  #find({ stream: number, answers }: EventPlace): EventStream | undefined {
    if (number === GENERAL_STREAM) return undefined;
    const open = this.#resumable?.get(number);
    const suffix = eventSuffix(answers);
    if (open?.suffix === suffix) return open;
    if (this.log.after(number, suffix, -1).length === 0) return undefined;
    const replay = new EventStream(number, this, undefined, 0, answers);
    replay.complete();
    return replay;
  }

  listen(sink: ResponseReceiver, after: EventPlace | undefined, lifeMs?: number): BackendRun {
    const number = after?.stream === GENERAL_STREAM ? after.number : undefined;
    const run = this.#listeners.join(this.general, sink, number, lifeMs);
    if (this.general.isConnected) for (const text of this.#undelivered.take()) this.general.event(text);
    return run;
  }

  sweep(nowMs: number): void {
    this.log.expire(nowMs);
    this.#listeners.expire(nowMs);
  }

  disconnect(): void {
    this.#listeners.close();
    this.general.disconnect();
  }

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
    this.#session.heartbeats.startHeartbeat(stream);
  }

  resumable(stream: EventStream): void {
    if (stream.number === GENERAL_STREAM || stream.isComplete) return;
    this.#resumable ??= new Map();
    // The error for a lost stream of another replica does not replace a stream of this one.
    if (!this.#resumable.has(stream.number)) this.#resumable.set(stream.number, stream);
  }

  closed(stream: EventStream): void {
    this.#session.heartbeats.stopHeartbeat(stream);
    this.#session.streamClosed();
    if (stream.isComplete && this.#resumable?.get(stream.number) === stream) {
      this.#resumable.delete(stream.number);
      this.#ended(stream);
    }
    if (!this.#listeners.left(stream) && stream === this.general) this.#session.peers.notListening();
  }

  #ended({ number, suffix }: EventStream): void {
    if (this.log.after(number, suffix, 0).length > 0) return;
    this.#silent = [...this.#silent, { number, suffix }].slice(-KEPT_SILENT);
  }

  moved(from: EventStream, to: EventStream): void {
    this.#session.heartbeats.stopHeartbeat(from);
    this.#session.heartbeats.startHeartbeat(to);
  }

  congested(isCongested: boolean): void {
    this.#session.congested(isCongested);
  }
}

class UndeliveredMessages {
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
    while (this.#texts.length > MAX_UNDELIVERED || (this.#chars > MAX_UNDELIVERED_CHARS && this.#texts.length > 0)) {
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

const MAX_LISTENERS = 4;
/**
 * At the connection limit, a new connection replaces the oldest one if that one has existed for this long, because it
 * may be dead. Otherwise, the new connection is rejected.
 */
const ESTABLISHED_MS = 30_000;
const RETRY_AFTER_SECONDS = "30";
const STREAM_REJECTED = -32000;
const NO_CALL: BackendRun = { abort: () => undefined, resume: () => undefined };

/** Represents one GET, whose connection is either the active one of the stream or on standby. */
class Listener implements BackendRun {
  readonly stream: EventStream;
  readonly sinceMs: number;
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
  /** The connections of all streams, oldest first. */
  #all: Listener[] = [];

  constructor(owner: StreamOwner) {
    this.#owner = owner;
  }

  /** Connects a client and sends the events after `after`. `lifeMs` limits the lifetime of the connection. */
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
    // Closes the connection of the original POST if it is still open.
    stream.disconnect();
    const listener = new Listener(stream, nowMs, nowMs + lifeMs);
    this.#all.push(listener);
    stream.attach(sink, after);
    stream.begin();
    return listener;
  }

  /** Handles the end of a connection. Returns true if the stream is still connected. */
  left(holder: EventStream): boolean {
    const gone = this.#all.find((one) => one.holder === holder);
    if (gone === undefined) return false;
    this.#all = this.#all.filter((one) => one !== gone);
    const { stream } = gone;
    if (holder !== stream) return true;
    const others = this.#of(stream);
    if (stream.isComplete) {
      // These clients can resume the stream and receive the remaining events from the log.
      for (const other of others) other.holder.disconnect();
      return false;
    }
    const next = others.at(-1);
    if (next === undefined) return false;
    next.holder.moveTo(stream);
    next.holder = stream;
    return true;
  }

  expire(nowMs: number): void {
    for (const { holder } of this.#all.filter((one) => nowMs >= one.untilMs)) holder.disconnect();
  }

  /** Ends all standby connections. The caller ends the active ones. */
  close(): void {
    const all = this.#all;
    this.#all = [];
    for (const { holder, stream } of all) if (holder !== stream) holder.disconnect();
  }

  #of(stream: EventStream): readonly Listener[] {
    return this.#all.filter((one) => one.stream === stream);
  }
}

/** Official clients stop resuming after status 405. */
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
