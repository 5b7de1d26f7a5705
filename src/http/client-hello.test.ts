import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { type ConnectionOptions, connect } from "node:tls";
import { peerInput } from "../base/peer-inputs.ts";
import { readClientHello } from "./client-hello.ts";

const HELLO = peerInput("client/tls-hello");

/** Returns the first bytes that a TLS client of Node sends. */
async function helloOf(t: TestContext, options: ConnectionOptions): Promise<Buffer> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
  const client = connect({ host: "127.0.0.1", port, ...options });
  client.on("error", () => undefined);
  const socket = await accepted;
  t.after(() => {
    client.destroy();
    socket.destroy();
    server.close();
  });
  const chunks: Buffer[] = [];
  for await (const chunk of socket) {
    chunks.push(chunk as Buffer);
    if (readClientHello(HELLO, Buffer.concat(chunks)).state === "complete") break;
  }
  return Buffer.concat(chunks);
}

/** Splits the handshake message over records of `size` bytes. */
function inRecords(hello: Buffer, size: number): Buffer {
  const records: Buffer[] = [];
  for (let at = 5; at < hello.length; at += size) {
    const part = hello.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

test("reads the server name of a client, in any number of parts", async (t) => {
  const hello = await helloOf(t, { servername: "A.Example.com", ALPNProtocols: ["h2", "mqtt"] });
  assert.deepEqual(readClientHello(HELLO, hello), { state: "complete", serverName: "a.example.com" });
  for (let length = 0; length < hello.length; length++)
    assert.equal(readClientHello(HELLO, hello.subarray(0, length)).state, "incomplete", `${length} bytes`);
  const followed = Buffer.concat([hello, Buffer.from([23, 3, 3, 0, 1, 0])]);
  assert.deepEqual(readClientHello(HELLO, followed), { state: "complete", serverName: "a.example.com" });
  for (const records of [2, 7, 64]) {
    const split = inRecords(hello, Math.ceil((hello.length - 5) / records));
    assert.deepEqual(readClientHello(HELLO, split), { state: "complete", serverName: "a.example.com" });
  }
});

test("a client without a server name has none", async (t) => {
  assert.deepEqual(readClientHello(HELLO, await helloOf(t, {})), { state: "complete", serverName: undefined });
});

const invalid: [name: string, bytes: Buffer][] = [
  ["HTTP", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
  ["another record", Buffer.from([23, 3, 1, 0, 1, 0])],
  ["another version", Buffer.from([22, 2, 0, 0, 1, 0])],
  ["another handshake message", Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0])],
  ["a message that is too large", Buffer.from([22, 3, 1, 0, 4, 1, 1, 0, 0])],
  ["a message without fields", Buffer.from([22, 3, 1, 0, 4, 1, 0, 0, 0])],
  ["a record without content", Buffer.from([22, 3, 1, 0, 0])],
  [
    "many records",
    Buffer.concat([Buffer.from([22, 3, 1, 0, 4, 1, 0, 64, 0]), ...Array(64).fill(Buffer.from([22, 3, 1, 0, 1, 0]))]),
  ],
];
for (const [name, bytes] of invalid)
  test(`rejects ${name}`, () => {
    assert.equal(readClientHello(HELLO, bytes).state, "invalid");
  });

test("lengths that exceed the message are rejected", async (t) => {
  const hello = await helloOf(t, { servername: "a.example.com" });
  const at = hello.indexOf("a.example.com") - 2;
  const changed = Buffer.from(hello);
  changed.writeUInt16BE(60_000, at);
  assert.equal(readClientHello(HELLO, changed).state, "invalid");
  const control = Buffer.from(hello);
  control[at + 2] = 10;
  assert.equal(readClientHello(HELLO, control).state, "invalid");
});
