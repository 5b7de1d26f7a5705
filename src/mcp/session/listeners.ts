/**
 * The GET requests of one session. Clients may have several open, and open one again that the gateway holds for
 * alive: the newest gets what is said, the others stay open beside it and take over when it leaves. None is ended for
 * another, because a client whose stream ends asks again, and two would take the stream from each other for ever.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { sendJson } from "../aggregation/router.ts";
import { errorText } from "../protocol/json-rpc.ts";
import { EventStream, type StreamOwner } from "./event-stream.ts";

/** Connections that one stream may have at a time. */
const MAX_LISTENERS = 4;
/** When all are newer than this, the next one has to wait; otherwise the oldest, which may be dead, makes room. */
const ESTABLISHED_MS = 30_000;
const RETRY_AFTER_SECONDS = "30";
const REFUSED = -32000;
const NOTHING_RUNS: BackendRun = { abort: () => undefined, resume: () => undefined };

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
    sink: BackendCall,
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
export function refuseFinished(sink: BackendCall): BackendRun {
  const text = errorText(undefined, REFUSED, "Method Not Allowed: this stream has ended, and its last event was sent");
  sendJson(sink, 405, text, ["allow", "POST, DELETE"]);
  return NOTHING_RUNS;
}

function refuseListener(sink: BackendCall): BackendRun {
  const text = errorText(undefined, REFUSED, `Conflict: this session has ${MAX_LISTENERS} event streams already`);
  sendJson(sink, 409, text, ["retry-after", RETRY_AFTER_SECONDS]);
  return NOTHING_RUNS;
}
