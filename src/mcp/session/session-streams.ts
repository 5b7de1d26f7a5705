/**
 * The event streams of one session: the general one, the answers that a client may come back for, and the events it
 * may have missed. Numbers go on where an earlier process may have given some, so that `Last-Event-ID` never means two
 * events.
 */

import type { MemoryAccount } from "../../base/memory-budget.ts";
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { errorText, INTERNAL_ERROR } from "../protocol/json-rpc.ts";
import { EventLog, type EventPlace } from "./event-log.ts";
import { EventStream, type StreamOwner } from "./event-stream.ts";
import { Listeners, refuseFinished } from "./listeners.ts";

/** Streams whose answer is complete but was not delivered are kept in the log only. */
const GENERAL_STREAM = 0;
const LOST = "the rest of this answer is not here any more, or the gateway was restarted; send the request again";
/** Streams that ended without an answer, whose clients may still ask for the rest. */
const KEPT_SILENT = 32;
/** As much as the log of events keeps. */
const MAX_UNHEARD = 256;
const MAX_UNHEARD_CHARS = 1024 * 1024;

/** What the streams need of their session. */
export interface StreamSession {
  readonly id: string;
  readonly nowMs: number;
  readonly primesStreams: boolean;
  streamOpened(stream: EventStream): void;
  streamClosed(stream: EventStream): void;
  congested(isCongested: boolean): void;
}

/** Where the client may listen instead. */
export interface OtherListeners {
  readonly isShared: boolean;
  listening(): void;
  notListening(): void;
  pass(text: string): Promise<boolean>;
}

export class SessionStreams implements StreamOwner {
  readonly general: EventStream;
  readonly log: EventLog;
  readonly account: MemoryAccount;
  readonly #session: StreamSession;
  readonly #others: OtherListeners;
  readonly #unheard: Unheard;
  readonly #listeners = new Listeners(this);
  #resumable: Map<number, EventStream> | undefined = undefined;
  /** Numbers of streams whose request was cancelled: nothing is lost there. */
  #silent: readonly number[] = [];
  #next: number;

  /** `before`: no number up to this one is given. */
  constructor(session: StreamSession, others: OtherListeners, account: MemoryAccount, before = 0) {
    this.account = account;
    this.log = new EventLog(account);
    this.#unheard = new Unheard(account);
    this.#session = session;
    this.#others = others;
    this.general = new EventStream(GENERAL_STREAM, this, undefined, before);
    this.#next = before + 1;
  }

  /** A stream for the answers of one POST; `answers` is the id of the request, if it is one alone. */
  create(primeAfterMs?: number, answers?: string): EventStream {
    return new EventStream(this.#next++, this, primeAfterMs, 0, answers);
  }

  /** Something that belongs to no call, for wherever the client listens. */
  say(text: string): void {
    if (this.general.isConnected || !this.#others.isShared) {
      this.general.event(text);
      return;
    }
    void this.#others.pass(text).then((isHeard) => {
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
  openOnly(sink: BackendCall, endpoint: string, closed: () => void): BackendRun {
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
  takeUp(sink: BackendCall, after: EventPlace, lifeMs?: number): BackendRun | undefined {
    if (after.isLast || this.#silent.includes(after.stream)) return refuseFinished(sink);
    const resumed = this.find(after.stream);
    if (resumed === undefined) return this.#lost(sink, after);
    if (resumed.isComplete && this.log.after(after.stream, after.number).length === 0) return refuseFinished(sink);
    return this.#listeners.join(resumed, sink, after.number, lifeMs);
  }

  /** The process that had the answer is gone, or is another replica: nobody should wait for it here. */
  #lost(sink: BackendCall, { stream, number, answers }: EventPlace): EventStream | undefined {
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
  listen(sink: BackendCall, after: EventPlace | undefined, lifeMs?: number): BackendRun {
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
    if (stream === this.general) this.#others.listening();
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
    if (!this.#listeners.left(stream) && stream === this.general) this.#others.notListening();
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
