/**
 * An HTTP/2 client that sends exact frames, for connections that no library opens.
 */
import { connect, type Socket } from "node:net";
import type { TestContext } from "node:test";

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
export const END_STREAM = 1;
export const END_HEADERS = 4;

/** Length, type, flags and stream of a frame (RFC 9113 section 4.1). */
export function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** A string of Latin-1 characters without Huffman coding (RFC 7541 section 5.2). */
function literal(text: string): Buffer {
  const lengthBytes: number[] = [];
  let rest = text.length - 127;
  if (rest < 0) lengthBytes.push(text.length);
  else {
    lengthBytes.push(127);
    for (; rest >= 128; rest >>= 7) lengthBytes.push((rest & 127) | 128);
    lengthBytes.push(rest);
  }
  return Buffer.concat([Buffer.from(lengthBytes), Buffer.from(text, "latin1")]);
}

/** A literal field without indexing (RFC 7541 section 6.2.2). */
export function field(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0]), literal(name), literal(value)]);
}

/** A literal field that is added to the dynamic table (RFC 7541 section 6.2.1). The newest has the index 62. */
export function indexedField(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0x40]), literal(name), literal(value)]);
}

/** A reference to a table entry (RFC 7541 section 6.1). */
export function reference(index: number): Buffer {
  return Buffer.from([0x80 | index]);
}

/** The pseudo-header fields, with scheme `http` and authority `a`. */
export function requestHead(method: string, path: string, ...fields: readonly Buffer[]): Buffer {
  return Buffer.concat([
    field(":method", method),
    reference(6),
    field(":path", path),
    field(":authority", "a"),
    ...fields,
  ]);
}

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const INITIAL_WINDOW_SIZE = 4;

export interface ReceivedFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export interface FrameClient {
  readonly socket: Socket;
  readonly isClosed: boolean;
  readonly frames: readonly ReceivedFrame[];
  send(...frames: readonly Buffer[]): void;
  /** The error code of the GOAWAY frame, if any (RFC 9113 section 6.8). */
  goaway(): number | undefined;
  /** The error codes of the streams that the server reset. */
  resets(): number[];
}

export interface FrameClientOptions {
  readonly from?: string;
  /** For the responses of each stream; the default is 65,535. */
  readonly windowBytes?: number;
}

/** The connection is closed when the test ends. */
export function openFrameClient(t: TestContext, port: number, options: FrameClientOptions = {}): FrameClient {
  const { from = "127.0.0.1", windowBytes } = options;
  const socket = connect({ port, host: "127.0.0.1", localAddress: from, noDelay: true });
  let isClosed = false;
  let rest: Buffer = Buffer.alloc(0);
  const frames: ReceivedFrame[] = [];
  socket.on("error", () => undefined);
  socket.on("close", () => {
    isClosed = true;
  });
  socket.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      const end = rest.length < 9 ? Number.POSITIVE_INFINITY : 9 + rest.readUIntBE(0, 3);
      if (end > rest.length) return;
      const [type, flags] = [rest.readUInt8(3), rest.readUInt8(4)];
      frames.push({ type, flags, stream: rest.readUInt32BE(5), payload: rest.subarray(9, end) });
      rest = rest.subarray(end);
    }
  });
  t.after(() => socket.destroy());
  const settings = Buffer.alloc(windowBytes === undefined ? 0 : 6);
  if (windowBytes !== undefined) {
    settings.writeUInt16BE(INITIAL_WINDOW_SIZE);
    settings.writeUInt32BE(windowBytes, 2);
  }
  socket.write(Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0, settings)]));
  return {
    socket,
    get isClosed() {
      return isClosed;
    },
    frames,
    send: (...sent) => void socket.write(Buffer.concat(sent)),
    goaway: () => frames.find(({ type }) => type === FRAME.goaway)?.payload.readUInt32BE(4),
    resets: () => frames.filter(({ type }) => type === FRAME.reset).map(({ payload }) => payload.readUInt32BE(0)),
  };
}
