/**
 * A client that says goodbye (GOAWAY) and goes on: what it asked for before is answered, what it opens after is named as
 * not processed or refused, so that it may be sent again elsewhere (RFC 9113 section 6.8), and then the connection ends.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import { test } from "node:test";
import { behindGateway } from "../support/scenario.ts";

const [DATA, HEADERS, RESET, SETTINGS, GOAWAY] = [0, 1, 3, 4, 7];
const [NO_ERROR, REFUSED] = [0, 7];
const [END_STREAM, END_HEADERS] = [1, 4];

interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

test("what a client opens after its own GOAWAY is named as not processed, and the rest is answered", async (t) => {
  const paths: string[] = [];
  let answer: (res: ServerResponse) => void = () => undefined;
  const held = new Promise<ServerResponse>((resolve) => {
    answer = resolve;
  });
  const { gateway } = await behindGateway(t, (req, res) => {
    paths.push(req.url ?? "");
    answer(res);
  });
  const socket = connect(gateway.port(), "127.0.0.1");
  t.after(() => socket.destroy());
  const frames = readFrames(socket);

  socket.write(
    Buffer.concat([Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(SETTINGS, 0, 0), get(1, "/before")]),
  );
  const response = await held;
  socket.write(Buffer.concat([frame(GOAWAY, 0, 0, Buffer.alloc(8)), get(3, "/after")]));
  const told = await frames.next(({ type, stream, payload }) =>
    type === GOAWAY ? payload.readUInt32BE(0) === 1 : type === RESET && stream === 3,
  );
  assert.equal(told.payload.readUInt32BE(told.type === GOAWAY ? 4 : 0), told.type === GOAWAY ? NO_ERROR : REFUSED);
  socket.write(get(5, "/later"));
  response.end("whole");
  const body = await frames.next(({ type, payload }) => type === DATA && payload.length > 0);
  assert.equal(body.stream, 1);
  assert.equal(body.payload.toString(), "whole");
  await once(socket, "close");
  assert.deepEqual(paths, ["/before"]);
});

function get(stream: number, path: string): Buffer {
  const field = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)]);
  const fields = { ":method": "GET", ":scheme": "http", ":authority": "a.example", ":path": path };
  const head = Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)));
  return frame(HEADERS, END_STREAM | END_HEADERS, stream, head);
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
