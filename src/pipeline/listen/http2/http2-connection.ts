/**
 * One HTTP/2 connection of a client: its streams are requests like any other. Bounded against clients that cost more than
 * they ask for: streams opened and reset at once, settings and pings in floods, heads without an end (RFC 9113 section 10.5).
 */
import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { NO_BODY } from "../../../core/exchange.ts";
import { endSessionLater } from "../../../http/h2/later-ends.ts";
import { LifeSigns } from "../../../http/h2/life-signs.ts";
import { KEEP_ALIVE_MS } from "../answer.ts";
import type { ConnectionOwner, OpenConnection } from "../connection-owner.ts";
import { MAX_STREAM_HEAD_BYTES, readStreamHead, StreamAnswer, type StreamOwner } from "./stream-answer.ts";

/** Requests of one connection at the same time. */
const MAX_STREAMS = 100;
/** Streams that a client gives up before their answer, in one second; browsers stay far below. */
const MAX_RESETS = 100;
/** SETTINGS and PING frames of a client in one second. */
const MAX_CONTROL_FRAMES = 100;
/** Lines of a head that nghttp2 keeps; the edge answers 431 long before. */
const MAX_FIELDS = 256;
/**
 * What one session may hold: heads, and what clients did not read yet; in MiB. Above it the next stream ends the session, so
 * that it must be more than some large answers at once: a tool's result may have 32 MiB.
 */
const MAX_SESSION_MIB = 100;
/** After GOAWAY the client has this long to close. */
const GOODBYE_MS = 5_000;

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_FLAG_END_STREAM } = constants;

const OPTIONS = {
  maxHeaderListPairs: MAX_FIELDS,
  maxSessionMemory: MAX_SESSION_MIB,
  settings: {
    maxConcurrentStreams: MAX_STREAMS,
    // A little more than what is accepted, so that a head that is too large gets an answer.
    maxHeaderListSize: 2 * MAX_STREAM_HEAD_BYTES,
  },
};

export class Http2Connection implements OpenConnection, StreamOwner {
  next: OpenConnection | undefined = undefined;
  previous: OpenConnection | undefined = undefined;
  readonly idle: StreamOwner["idle"];
  readonly responses: StreamOwner["responses"];
  readonly streams: StreamOwner["streams"];
  readonly #owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #session: ServerHttp2Session;
  readonly #lifeSigns: LifeSigns;
  readonly #endNow: () => void;
  #open = 0;
  #served = 0;
  #resets = 0;
  #controlFrames = 0;
  /** How long it has had nothing to do, or how long it has been saying goodbye. */
  #silentMs = 0;
  #isClosing = false;

  /** The socket is paused; what it has read already is read again. */
  constructor(socket: Socket, owner: ConnectionOwner) {
    this.#socket = socket;
    this.#owner = owner;
    this.idle = owner.idle;
    this.responses = owner.responses;
    this.streams = owner.streams;
    const session = performServerHandshake(socket, OPTIONS);
    this.#session = session;
    this.#endNow = endSessionLater(session);
    // Node calls it for a client's GOAWAY. It would refuse streams that follow in the same packet while nghttp2 reads it, and
    // free them under its hands. What the client still sends is answered instead, and then the connection ends.
    session.close = () => this.#leave();
    this.#lifeSigns = new LifeSigns(session, socket, owner.silentPeerMs);
    session.on("stream", (stream: ServerHttp2Stream, _headers: unknown, flags: number, raw: readonly string[]) =>
      this.#begin(stream, flags, raw),
    );
    session.on("ping", () => this.#countControl());
    session.on("remoteSettings", () => this.#countControl());
    session.on("error", ignore);
    // Once its session is destroyed, Node before 20.20 leaves the errors of a TLS socket to nobody.
    socket.on("error", ignore);
    session.on("close", () => owner.closed(this));
  }

  sweep(): void {
    this.#resets = 0;
    this.#controlFrames = 0;
    if (this.#open > 0) {
      this.#silentMs = 0;
      if (this.#lifeSigns.hasDied(this.#owner.sweepMs)) this.#session.destroy();
      return;
    }
    this.#silentMs += this.#owner.sweepMs;
    if (this.#isClosing) {
      if (this.#silentMs >= GOODBYE_MS) this.#session.destroy();
    } else if (
      this.#silentMs >= (this.#served === 0 ? this.#owner.headersTimeoutMs : KEEP_ALIVE_MS) ||
      this.#owner.closesKept()
    )
      this.#goAway();
  }

  /** Streams under way finish; no others are taken. */
  closeIfIdle(): void {
    this.#goAway();
  }

  destroy(): void {
    this.#session.destroy();
  }

  streamEnded(wasReset: boolean): void {
    this.#open -= 1;
    this.#owner.ended();
    if (this.#isClosing) this.#endIfDone();
    if (!wasReset) return;
    this.#resets += 1;
    if (this.#resets > MAX_RESETS) this.#calmDown();
  }

  unexpected(error: unknown): void {
    this.#owner.unexpected(error, this.#socket);
    this.#session.destroy();
  }

  #begin(stream: ServerHttp2Stream, flags: number, raw: readonly string[]): void {
    try {
      const request = readStreamHead(raw);
      this.#open += 1;
      this.#served += 1;
      const answer = new StreamAnswer(stream, request, (flags & NGHTTP2_FLAG_END_STREAM) !== 0, this);
      const body =
        answer.body === undefined
          ? NO_BODY
          : { kind: "stream" as const, stream: answer.body, length: request.contentLength, taken: false };
      this.#owner.begin(request, body, answer, this.#socket);
    } catch (error) {
      this.unexpected(error);
    }
  }

  #countControl(): void {
    this.#controlFrames += 1;
    if (this.#controlFrames > MAX_CONTROL_FRAMES) this.#calmDown();
  }

  #calmDown(): void {
    if (this.#session.destroyed) return;
    // Without an error the code would be ignored.
    this.#session.destroy(new Error("the client sends too much"), NGHTTP2_ENHANCE_YOUR_CALM);
  }

  #goAway(): void {
    if (this.#isClosing || this.#session.destroyed) return;
    if (this.#open > 0) this.#session.goaway();
    this.#leave();
  }

  /** Streams under way finish. */
  #leave(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#silentMs = 0;
    this.#endIfDone();
  }

  #endIfDone(): void {
    if (this.#open > 0) return;
    setImmediate(() => {
      if (this.#open === 0) this.#endNow();
    });
  }
}

function ignore(): void {
  // The close event that follows says what there is to say.
}
