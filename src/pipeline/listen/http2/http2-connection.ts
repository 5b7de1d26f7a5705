/**
 * Handles an HTTP/2 client connection. It limits rapid resets and floods of SETTINGS and PING frames (RFC 9113 section
 * 10.5).
 */
import { constants, performServerHandshake, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { peerInput } from "../../../base/peer-inputs.ts";
import { NO_BODY } from "../../../core/exchange.ts";
import { closeStreamLater, endSessionLater } from "../../../http/h2/later-ends.ts";
import { LifeSigns } from "../../../http/h2/life-signs.ts";
import { parseStreamHead } from "../../../http/h2/parse-stream-head.ts";
import { REQUEST_COST, ReadTurn, sessionReads, unsentBytes } from "../../../http/h2/read-turns.ts";
import type { ConnectionOwner, OpenConnection } from "../client-connection.ts";
import { beginRequest } from "../request-entry.ts";
import { KEEP_ALIVE_MS } from "../response-writer.ts";
import { type ClientStreams, StreamAccounts } from "./stream-accounts.ts";
import { type StreamOwner, StreamResponse } from "./stream-response.ts";
import { type StreamShare, streamShares } from "./stream-shares.ts";

const HEAD = peerInput("client/http2-head");
/** A client may reset this many streams between two sweeps. */
const MAX_RESETS = 100;
/** A client may send this many SETTINGS and PING frames between two sweeps. */
const MAX_CONTROL_FRAMES = 100;
const MAX_FIELDS = 256;
/** Limits the memory of a session, which must hold several large unread responses. */
const MAX_SESSION_MIB = 100;
/** A closing connection without streams is destroyed after this time. */
const GOODBYE_MS = 5_000;
/** A client that reads less does not count as reading. Acknowledgments of its own frames exceed this only in floods. */
const MIN_READ_BYTES_PER_SECOND = 1_024;

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_FLAG_END_STREAM } = constants;

const OPTIONS = {
  maxHeaderListPairs: MAX_FIELDS,
  maxSessionMemory: MAX_SESSION_MIB,
  // These exist from Node 24 on. The connection's own limit takes effect before, with a better error code.
  streamResetBurst: 2 * MAX_RESETS,
  streamResetRate: 2 * MAX_RESETS,
  settings: {
    maxConcurrentStreams: HEAD.maxOpen,
    // This exceeds the accepted size, so that an oversized head gets a response.
    maxHeaderListSize: 2 * HEAD.maxBytes,
  },
};

export class Http2Connection implements OpenConnection, StreamOwner {
  next: OpenConnection | undefined = undefined;
  previous: OpenConnection | undefined = undefined;
  readonly idle: StreamOwner["idle"];
  readonly waitingBytes: StreamOwner["waitingBytes"];
  readonly streams: StreamOwner["streams"];
  readonly turn: ReadTurn;
  readonly #owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #session: ServerHttp2Session;
  readonly #lifeSigns: LifeSigns;
  readonly #endNow: () => void;
  readonly #open = new Set<StreamResponse>();
  /** Streams of requests that begin in a later turn. */
  readonly #waiting = new Map<ServerHttp2Stream, () => void>();
  readonly #accounts: StreamAccounts;
  readonly #share: StreamShare | undefined;
  #served = 0;
  #sentBytes = 0;
  #resets = 0;
  #controlFrames = 0;
  #silentMs = 0;
  #isClosing = false;
  #isCalmed = false;

  constructor(socket: Socket, owner: ConnectionOwner) {
    this.#socket = socket;
    this.#owner = owner;
    this.idle = owner.idle;
    this.waitingBytes = owner.waitingBytes;
    this.streams = owner.streams;
    const { env } = owner;
    this.#accounts = new StreamAccounts(env.memory.openStreams, (client) => this.#cut(client));
    const { remoteAddress } = socket;
    // As for connections, trusted proxies and Unix sockets are not limited.
    const isLimited = remoteAddress !== undefined && !env.isTrustedPeer(remoteAddress);
    this.#share = isLimited ? streamShares.join(remoteAddress) : undefined;
    const session = performServerHandshake(socket, OPTIONS);
    this.#session = session;
    this.#endNow = endSessionLater(session);
    // Node calls `close` for a client's GOAWAY. Its implementation would reject streams that follow in the same packet,
    // so pending streams are served before the connection ends.
    session.close = () => this.#leave();
    this.#lifeSigns = new LifeSigns(session, socket, env.limits.silentPeerMs);
    session.on("stream", (stream: ServerHttp2Stream, _headers: unknown, flags: number, raw: readonly string[]) =>
      this.#arrived(stream, () => this.#begin(stream, flags, raw)),
    );
    const reads = sessionReads(socket);
    this.turn = new ReadTurn({
      start: () => {
        this.#beginWaiting();
        if (!this.turn.isOver) reads.start();
      },
      stop: reads.stop,
    });
    session.on("ping", () => this.#countControl());
    session.on("remoteSettings", () => this.#countControl());
    session.on("error", ignore);
    // After its session is destroyed, some versions of Node leave errors of a TLS socket unhandled.
    socket.on("error", ignore);
    session.on("close", () => {
      this.#share?.leave();
      owner.closed(this);
    });
  }

  sweep(): void {
    this.#resets = 0;
    this.#controlFrames = 0;
    if (this.#session.destroyed) {
      this.#destroySocket();
      return;
    }
    if (this.#hasStreams) {
      this.#silentMs = 0;
      this.#sweepStreams();
      if (this.#lifeSigns.hasDied(this.#owner.sweepMs)) this.#session.destroy();
      return;
    }
    this.#silentMs += this.#owner.sweepMs;
    if (this.#isClosing) {
      if (this.#silentMs >= GOODBYE_MS) this.#session.destroy();
    } else if (
      this.#silentMs >= (this.#served === 0 ? this.#owner.env.limits.headersTimeoutMs : KEEP_ALIVE_MS) ||
      this.#owner.closesKept()
    )
      this.#goAway();
  }

  closeIfIdle(): void {
    this.#goAway();
  }

  destroy(): void {
    this.#session.destroy();
  }

  #sweepStreams(): void {
    const { bytesWritten } = this.#socket;
    const sentBytes = bytesWritten - unsentBytes(this.#socket);
    const isReading = (sentBytes - this.#sentBytes) * 1_000 >= MIN_READ_BYTES_PER_SECOND * this.#owner.sweepMs;
    this.#sentBytes = sentBytes;
    for (const response of this.#open) response.sweep(isReading, this.#owner.sweepMs);
  }

  /** A client that reads nothing would keep the connection open, because its last bytes cannot be written. */
  #destroySocket(): void {
    this.#silentMs += this.#owner.sweepMs;
    if (!this.#isClosing || this.#silentMs >= GOODBYE_MS) this.#socket.destroy();
  }

  streamEnded(response: StreamResponse, wasReset: boolean): void {
    this.#open.delete(response);
    if (this.#share !== undefined) this.#share.open -= 1;
    if (response.charge !== undefined) this.#accounts.release(response.charge);
    this.#owner.ended();
    if (this.#isClosing) this.#endIfDone();
    if (wasReset) this.#countReset();
  }

  #countReset(): void {
    this.#resets += 1;
    if (this.#resets > MAX_RESETS) this.#calmDown();
  }

  unexpected(error: unknown): void {
    this.#owner.unexpected(error, this.#socket);
    this.#session.destroy();
  }

  /** A stream that its client resets while it waits costs nothing more. */
  #arrived(stream: ServerHttp2Stream, begin: () => void): void {
    if (!this.turn.isOver) {
      begin();
      return;
    }
    stream.on("error", ignore);
    if (this.#isCalmed) return;
    this.#waiting.set(stream, begin);
    stream.once("close", () => {
      if (!this.#waiting.delete(stream)) return;
      this.#countReset();
      if (this.#isClosing) this.#endIfDone();
    });
  }

  #beginWaiting(): void {
    for (const [stream, begin] of this.#waiting) {
      if (this.turn.isOver) return;
      this.#waiting.delete(stream);
      begin();
    }
  }

  get #hasStreams(): boolean {
    return this.#open.size + this.#waiting.size > 0;
  }

  #begin(stream: ServerHttp2Stream, flags: number, raw: readonly string[]): void {
    try {
      this.turn.spend(REQUEST_COST);
      if (this.#owner.env.heap.level === "full") {
        refuse(stream);
        return;
      }
      const request = parseStreamHead(raw);
      this.#served += 1;
      const response = new StreamResponse(stream, request, (flags & NGHTTP2_FLAG_END_STREAM) !== 0, this);
      this.#open.add(response);
      response.isBeyondLimit = this.#exceedsShare();
      const body =
        response.body === undefined
          ? NO_BODY
          : { kind: "stream" as const, stream: response.body, length: request.contentLength, taken: false };
      beginRequest(this.#owner, request, body, response, this.#socket);
      response.charge = this.#accounts.charge(response.client, request.bytes);
    } catch (error) {
      this.unexpected(error);
    }
  }

  #exceedsShare(): boolean {
    if (this.#share === undefined) return false;
    this.#share.open += 1;
    return this.#share.open > this.#owner.env.limits.maxStreamsPerAddress;
  }

  /** Ends the connection, or only the client's streams if a proxy sends those of other clients over it. */
  #cut(client: ClientStreams): void {
    let hasOthers = false;
    for (const { charge } of this.#open) if (charge !== undefined && charge.client !== client) hasOthers = true;
    if (!hasOthers) this.#calmDown();
    else for (const response of this.#open) if (response.charge?.client === client) response.calmDown();
  }

  #countControl(): void {
    this.#controlFrames += 1;
    this.turn.spend(1);
    if (this.#controlFrames > MAX_CONTROL_FRAMES) this.#calmDown();
  }

  /** Nothing more is read, and the streams of the current read are ignored. The session ends after that read. */
  #calmDown(): void {
    if (this.#isCalmed || this.#session.destroyed) return;
    this.#isCalmed = true;
    this.turn.stop();
    // Node ignores the code if no error is passed.
    this.#session.destroy(new Error("the client sends too much"), NGHTTP2_ENHANCE_YOUR_CALM);
  }

  #goAway(): void {
    if (this.#isClosing || this.#session.destroyed) return;
    if (this.#hasStreams) this.#session.goaway();
    this.#leave();
  }

  #leave(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#silentMs = 0;
    this.#endIfDone();
  }

  #endIfDone(): void {
    if (this.#hasStreams) return;
    setImmediate(() => {
      if (!this.#hasStreams) this.#endNow();
    });
  }
}

/** The response to a rejected request would be one more that waits for its client. */
function refuse(stream: ServerHttp2Stream): void {
  stream.on("error", ignore);
  stream.resume();
  closeStreamLater(stream, NGHTTP2_ENHANCE_YOUR_CALM);
}

function ignore(): void {
  // A close event follows.
}
