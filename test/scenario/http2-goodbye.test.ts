/**
 * A client that says goodbye (GOAWAY) and goes on, in one packet: everything is answered, and then the connection ends. Node
 * alone would refuse what follows in that packet while nghttp2 reads it, which corrupts the memory of the process.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { behindGateway } from "../support/scenario.ts";

const [DATA, HEADERS, SETTINGS, PING, GOAWAY] = [0, 1, 4, 6, 7];
const ENHANCE_YOUR_CALM = 11;
const [END_STREAM, END_HEADERS] = [1, 4];

interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

for (const [name, code] of [
  ["without an error", 0],
  ["with an error", 1],
] as const) {
  test(`a client that says goodbye ${name} in the middle of a packet ends its connection, never the process`, async (t) => {
    const { gateway } = await behindGateway(t, (req, res) => {
      req.resume().on("end", () => res.end(`answer to ${req.url}`));
    });
    const socket = connect(gateway.port(), "127.0.0.1");
    t.after(() => socket.destroy());
    const frames = readFrames(socket);
    const closed = once(socket, "close");
    const goodbye = Buffer.from([0, 0, 0, 0, 0, 0, 0, code]);
    socket.write(
      Buffer.concat([
        Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        frame(SETTINGS, 0, 0),
        request(1, "POST", "/before"),
        frame(GOAWAY, 0, 0, goodbye),
        frame(DATA, END_STREAM, 1, Buffer.from("body")),
        request(3, "GET", "/after"),
        request(5, "GET", "/later"),
      ]),
    );
    if (code === 0)
      for (const [stream, path] of [
        [1, "/before"],
        [3, "/after"],
        [5, "/later"],
      ]) {
        const body = await frames.next((one) => one.type === DATA && one.stream === stream && one.payload.length > 0);
        assert.equal(body.payload.toString(), `answer to ${path}`);
      }
    await closed;
  });
}

test("a flood of PINGs before a body ends the connection after the packet is read", async (t) => {
  const { gateway } = await behindGateway(t);
  const socket = connect(gateway.port(), "127.0.0.1");
  t.after(() => socket.destroy());
  const frames = readFrames(socket);
  const closed = once(socket, "close");
  socket.write(
    Buffer.concat([
      Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
      frame(SETTINGS, 0, 0),
      request(1, "POST", "/"),
      ...Array.from({ length: 200 }, () => frame(PING, 0, 0, Buffer.alloc(8))),
      frame(DATA, END_STREAM, 1, Buffer.from("body")),
      request(3, "GET", "/"),
    ]),
  );
  const goodbye = await frames.next(({ type }) => type === GOAWAY);
  assert.equal(goodbye.payload.readUInt32BE(4), ENHANCE_YOUR_CALM);
  await closed;
});

function request(stream: number, method: "GET" | "POST", path: string): Buffer {
  const field = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)]);
  const fields = { ":method": method, ":scheme": "http", ":authority": "a.example", ":path": path };
  const head = Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)));
  return frame(HEADERS, method === "GET" ? END_STREAM | END_HEADERS : END_HEADERS, stream, head);
}

function frame(type: number, flags: number, stream: number, payload = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]);
}

function readFrames(socket: NodeJS.ReadableStream): { next(fits: (one: Frame) => boolean): Promise<Frame> } {
  let bytes = Buffer.alloc(0);
  const come: Frame[] = [];
  const waiting = new Set<() => void>();
  socket.on("data", (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    for (let length = bytes.readUIntBE(0, 3); bytes.length >= 9 + length; length = bytes.readUIntBE(0, 3)) {
      const [type = 0, flags = 0] = bytes.subarray(3);
      come.push({ type, flags, stream: bytes.readUInt32BE(5), payload: bytes.subarray(9, 9 + length) });
      bytes = bytes.subarray(9 + length);
      if (bytes.length < 9) break;
    }
    for (const look of waiting) look();
  });
  return {
    next: (fits) =>
      new Promise((resolve) => {
        const look = (): void => {
          const at = come.findIndex(fits);
          if (at < 0) return;
          waiting.delete(look);
          resolve(come.splice(at, 1)[0] as Frame);
        };
        waiting.add(look);
        look();
      }),
  };
}
