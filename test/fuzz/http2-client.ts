/**
 * The frames of an HTTP/2 client (RFC 9113), as bytes. It keeps no state but the numbers of its streams, so it can also
 * send frames that a correct client would not send: data after a reset, more data than the window allows, half a frame.
 */
const TYPE = { data: 0, headers: 1, reset: 3, settings: 4, goAway: 7, window: 8, continuation: 9 } as const;
const END_STREAM = 1;
const END_HEADERS = 4;
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
const MAX_FRAME_BYTES = 16_384;
const INITIAL_WINDOW_SIZE = 4;
const CANCEL = 8;
const MORE_WINDOW = 100_000;

/** Selects one of the client's streams. */
export type Which = "newest" | "oldest";

export class Http2Client {
  #lastStream = -1;

  /** `streamWindow` is how much of a response the client accepts before it widens the window. */
  open(streamWindow: number): Buffer {
    const settings = Buffer.alloc(6);
    settings.writeUInt16BE(INITIAL_WINDOW_SIZE, 0);
    settings.writeUInt32BE(streamWindow, 2);
    return Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0, settings)]);
  }

  get(): Buffer {
    return frame(TYPE.headers, END_STREAM | END_HEADERS, this.#nextStream(), head("GET"));
  }

  getInTwoFrames(): Buffer {
    const stream = this.#nextStream();
    const fields = head("GET");
    return Buffer.concat([
      frame(TYPE.headers, END_STREAM, stream, fields.subarray(0, 5)),
      frame(TYPE.continuation, END_HEADERS, stream, fields.subarray(5)),
    ]);
  }

  /** The body goes on after `text`. */
  post(text: string, length?: number, extra: readonly string[] = []): Buffer {
    const fields = head("POST", ...(length === undefined ? [] : ["content-length", String(length)]), ...extra);
    const begun = frame(TYPE.headers, END_HEADERS, this.#nextStream(), fields);
    return text === "" ? begun : Buffer.concat([begun, this.data("newest", Buffer.from(text))]);
  }

  data(which: Which, bytes: Buffer): Buffer {
    const frames: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += MAX_FRAME_BYTES)
      frames.push(frame(TYPE.data, 0, this.#stream(which), bytes.subarray(at, at + MAX_FRAME_BYTES)));
    return Buffer.concat(frames);
  }

  endBody(which: Which): Buffer {
    return frame(TYPE.data, END_STREAM, this.#stream(which));
  }

  resetStream(which: Which): Buffer {
    return frame(TYPE.reset, 0, this.#stream(which), number(CANCEL));
  }

  /** Lets the gateway send more, on the connection and on the newest stream. */
  widen(): Buffer {
    return Buffer.concat([
      frame(TYPE.window, 0, 0, number(MORE_WINDOW)),
      frame(TYPE.window, 0, this.#stream("newest"), number(MORE_WINDOW)),
    ]);
  }

  goAway(): Buffer {
    return frame(TYPE.goAway, 0, 0, Buffer.concat([number(0), number(0)]));
  }

  /** A SETTINGS frame must not belong to a stream. */
  malformed(): Buffer {
    return frame(TYPE.settings, 0, this.#stream("newest"));
  }

  #nextStream(): number {
    this.#lastStream += 2;
    return this.#lastStream;
  }

  #stream(which: Which): number {
    return which === "oldest" || this.#lastStream < 0 ? 1 : this.#lastStream;
  }
}

function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const start = Buffer.alloc(9);
  start.writeUIntBE(payload.length, 0, 3);
  start[3] = type;
  start[4] = flags;
  start.writeUInt32BE(stream, 5);
  return Buffer.concat([start, payload]);
}

/** A head as literals without indexing and without Huffman coding (RFC 7541 section 6.2.2). */
function head(method: string, ...extra: readonly string[]): Buffer {
  const fields = [":method", method, ":scheme", "http", ":authority", "a", ":path", "/", ...extra];
  const bytes: Buffer[] = [];
  for (const [i, text] of fields.entries()) {
    if (i % 2 === 0) bytes.push(Buffer.from([0]));
    bytes.push(Buffer.from([text.length]), Buffer.from(text, "latin1"));
  }
  return Buffer.concat(bytes);
}

function number(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
