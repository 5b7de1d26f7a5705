/**
 * HTTP/2 clients that wait in silence: one that answers is left in peace, one whose connection ended with a protocol
 * error is noticed, and what it asked for is given up. (The HTTP/2 library does not read such a connection any more.)
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect } from "node:http2";
import { connect as connectTcp } from "node:net";
import type { Readable } from "node:stream";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

let backend: TestBackend;
let gateway: TestGateway;
let asked: (request: IncomingMessage) => void = () => undefined;
before(async () => {
  backend = await startBackend((req, res) => {
    if (req.url === "/silent") res.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n");
    asked(req);
  });
  gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
    { listenerLimits: { silentPeerMs: 150, checkIntervalMs: 50 } },
  );
});
after(async () => {
  await gateway?.close();
  await backend?.close();
});

test("a stream without data goes on as long as its client answers", async (t) => {
  const client = connect(`http://127.0.0.1:${gateway.port()}`);
  t.after(() => client.destroy());
  const stream = client.request({ ":path": "/silent" });
  stream.resume();
  await once(stream, "response");
  for (let pings = 0; pings < 5; pings++) await once(client, "ping");
  assert.equal(stream.closed, false);
});

/** Also if an error comes before it. */
function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    if (stream.closed) resolve();
    else stream.on("error", () => undefined).once("close", resolve);
  });
}

/** A head without Huffman coding, then a PRIORITY frame that depends on itself. */
function brokenConnection(): Buffer {
  const field = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)]);
  const frame = (type: number, flags: number, stream: number, payload: Buffer): Buffer =>
    Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]);
  const head = [
    [":method", "GET"],
    [":scheme", "http"],
    [":authority", "a.example"],
    [":path", "/never"],
  ].map(([name, value]) => field(name as string, value as string));
  return Buffer.concat([
    Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    frame(4, 0, 0, Buffer.alloc(0)),
    frame(1, 5, 1, Buffer.concat(head)),
    frame(2, 0, 3, Buffer.from([0, 0, 0, 3, 1])),
  ]);
}

test("a connection that ended with a protocol error gives up what it asked for", async (t) => {
  const arrived = new Promise<IncomingMessage>((resolve) => {
    asked = resolve;
  });
  const socket = connectTcp(gateway.port(), "127.0.0.1");
  t.after(() => socket.destroy());
  socket.on("error", () => undefined);
  socket.resume();
  socket.write(brokenConnection());
  const request = await arrived;
  await closed(request);
  await closed(socket);
});
