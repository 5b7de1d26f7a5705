/**
 * Sends HTTP/2 requests without a body and without any checks, so that malformed heads reach the server. One request is
 * in flight at a time.
 */
import type { Socket } from "node:net";
import { END_HEADERS, END_STREAM, FRAME, field, frame, PREFACE, uint32 } from "./raw-frames.ts";
import { readResponseFields } from "./response-fields.ts";

export interface StreamResponse {
  readonly fields: ReadonlyMap<string, string>;
  readonly body: string;
}

export interface StreamReset {
  /** The error code of the RST_STREAM frame. */
  readonly reset: number;
}

/** Node's server closes a connection with 1,000 malformed requests. */
const MAX_REQUESTS = 500;
const MAX_FRAME_BYTES = 16_384;
const ACK = 1;
const PADDED = 8;
const MAX_WINDOW = 2 ** 31 - 1;
const DEFAULT_WINDOW = 65_535;
/** An empty dynamic table, no pushed streams, and room for every response. */
const SETTINGS = [
  [1, 0],
  [2, 0],
  [4, MAX_WINDOW],
] as const;

interface PendingRequest {
  readonly stream: number;
  fields: ReadonlyMap<string, string> | undefined;
  readonly block: Buffer[];
  readonly body: Buffer[];
  isLast: boolean;
  resolve(outcome: StreamResponse | StreamReset | undefined): void;
}

export class RawHttp2Client {
  readonly #openSocket: () => Socket;
  #socket: Socket | undefined = undefined;
  #unread: Buffer = Buffer.alloc(0);
  #lastStream = -1;
  #pending: PendingRequest | undefined = undefined;

  constructor(openSocket: () => Socket) {
    this.#openSocket = openSocket;
  }

  /** Resolves with undefined if the connection fails without a response. */
  send(fields: readonly (readonly [name: string, value: string])[]): Promise<StreamResponse | StreamReset | undefined> {
    if (this.#lastStream > 2 * MAX_REQUESTS) this.close();
    const opening = this.#socket === undefined ? [this.#open()] : [];
    const socket = this.#socket as Socket;
    this.#lastStream += 2;
    const stream = this.#lastStream;
    const block = Buffer.concat(fields.map(([name, value]) => field(name, value)));
    return new Promise((resolve) => {
      this.#pending = { stream, fields: undefined, block: [], body: [], isLast: false, resolve };
      socket.write(Buffer.concat([...opening, ...headFrames(stream, block)]));
    });
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
    this.#settle(undefined);
  }

  #open(): Buffer {
    const socket = this.#openSocket();
    this.#socket = socket;
    this.#unread = Buffer.alloc(0);
    this.#lastStream = -1;
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      if (this.#socket === socket) this.#read(chunk);
    });
    socket.on("close", () => {
      if (this.#socket === socket) this.close();
    });
    const settings = Buffer.alloc(6 * SETTINGS.length);
    for (const [i, [name, value]] of SETTINGS.entries()) {
      settings.writeUInt16BE(name, 6 * i);
      settings.writeUInt32BE(value, 6 * i + 2);
    }
    return Buffer.concat([
      PREFACE,
      frame(FRAME.settings, 0, 0, settings),
      frame(FRAME.windowUpdate, 0, 0, uint32(MAX_WINDOW - DEFAULT_WINDOW)),
    ]);
  }

  #read(chunk: Buffer): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    while (this.#unread.length >= 9) {
      const end = 9 + this.#unread.readUIntBE(0, 3);
      if (this.#unread.length < end) return;
      const bytes = this.#unread;
      this.#unread = bytes.subarray(end);
      this.#receive(bytes[3] as number, bytes[4] as number, bytes.readUInt32BE(5), bytes.subarray(9, end));
    }
  }

  #receive(type: number, flags: number, stream: number, payload: Buffer): void {
    if (type === FRAME.settings && (flags & ACK) === 0) this.#socket?.write(frame(FRAME.settings, ACK, 0));
    if (type === FRAME.ping && (flags & ACK) === 0) this.#socket?.write(frame(FRAME.ping, ACK, 0, payload));
    const pending = this.#pending;
    if (type === FRAME.goaway) {
      // A stream that the server has accepted still gets a response. The next request opens a new connection.
      if (pending === undefined || payload.readUInt32BE(0) < pending.stream) this.close();
      else this.#lastStream = Number.POSITIVE_INFINITY;
      return;
    }
    if (pending === undefined || stream !== pending.stream) return;
    if (type === FRAME.reset) {
      this.#settle({ reset: payload.readUInt32BE(0) });
      return;
    }
    const isHead = type === FRAME.headers || type === FRAME.continuation;
    if (!isHead && type !== FRAME.data) return;
    if (type !== FRAME.continuation) {
      if ((flags & PADDED) !== 0) throw new Error("the client reads no padding");
      pending.isLast = (flags & END_STREAM) !== 0;
    }
    if (isHead) pending.block.push(payload);
    else pending.body.push(payload);
    if (isHead && (flags & END_HEADERS) !== 0) {
      const fields = readResponseFields(Buffer.concat(pending.block.splice(0)));
      // Trailers follow the fields of the response.
      pending.fields ??= fields;
    }
    if (pending.isLast && (!isHead || (flags & END_HEADERS) !== 0) && pending.fields !== undefined)
      this.#settle({ fields: pending.fields, body: Buffer.concat(pending.body).toString() });
  }

  #settle(outcome: StreamResponse | StreamReset | undefined): void {
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.resolve(outcome);
  }
}

function headFrames(stream: number, block: Buffer): Buffer[] {
  const frames: Buffer[] = [];
  for (let at = 0; at < block.length; at += MAX_FRAME_BYTES) {
    const isLast = at + MAX_FRAME_BYTES >= block.length;
    const type = at === 0 ? FRAME.headers : FRAME.continuation;
    const flags = (at === 0 ? END_STREAM : 0) | (isLast ? END_HEADERS : 0);
    frames.push(frame(type, flags, stream, block.subarray(at, at + MAX_FRAME_BYTES)));
  }
  return frames;
}
