/**
 * WebSocket upgrades to plain HTTP backends: passed on, refused by policies like any request, ended with us.
 */
import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { openRawClient, type RawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const HANDSHAKE =
  "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

/** Echoes bytes after a 101; `refuse` answers 403 instead. */
async function echoBackend(t: TestContext, refuse = false) {
  const backend = await backendFor(t);
  const sockets: Duplex[] = [];
  backend.server.on("upgrade", (req, socket: Duplex) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    if (refuse) {
      socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\nConnection: close\r\n\r\nno way");
      return;
    }
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Seen: ${req.headers["x-forwarded-for"]}\r\n\r\nhello `,
    );
    socket.pipe(socket);
  });
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return { backend, sockets };
}

const config = (host: string, policies = ""): string =>
  `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${host}" }]${policies === "" ? "" : `, policies: { ${policies} }`} }]\n`;

test("bytes flow both ways after the upgrade, also those sent with the request", async (t) => {
  const { backend, sockets } = await echoBackend(t);
  const gateway = await gatewayFor(t, config(backend.host));
  const client = openRawClient(gateway.port());
  client.write(`${HANDSHAKE}\r\nfirst`);
  const head = await client.until("first");
  assert.match(head, /^HTTP\/1\.1 101 Switching Protocols\r\n/);
  assert.match(head, /x-seen: 127\.0\.0\.1\r\n/);
  assert.match(head, /x-request-id: [0-9a-f]{16}\r\n/);
  assert.match(head, /\r\n\r\nhello first$/);
  client.write("second");
  await client.until("firstsecond");
  client.close();
  await eventually("the backend's side is closed", () => sockets.every((socket) => socket.destroyed));
  assert.match(await gateway.logged("path=/chat"), /status=101/);
});

test("the backend's end of the conversation is passed on", async (t) => {
  const { backend, sockets } = await echoBackend(t);
  const gateway = await gatewayFor(t, config(backend.host));
  const client = openRawClient(gateway.port());
  client.write(`${HANDSHAKE}\r\n`);
  await client.until("hello");
  for (const socket of sockets) socket.end();
  await client.ended();
});

test("a backend that refuses the upgrade answers as usual", async (t) => {
  const { backend } = await echoBackend(t, true);
  const gateway = await gatewayFor(t, config(backend.host));
  const answer = await upgradeRefused(gateway.port());
  assert.match(answer, /^HTTP\/1\.1 403 Forbidden/);
  assert.match(answer, /no way$/);
});

test("a policy that answers the upgrade request ends the connection, and nothing reaches the backend", async (t) => {
  const { backend, sockets } = await echoBackend(t);
  const gateway = await gatewayFor(t, config(backend.host, "directResponse: { status: 401, body: denied }"));
  const answer = await upgradeRefused(gateway.port());
  assert.match(answer, /^HTTP\/1\.1 401 Unauthorized/);
  assert.match(answer, /denied$/);
  assert.equal(sockets.length, 0);
});

test("an upgrade request that no route takes, or that the edge refuses, is answered", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  assert.match(await upgradeRefused(gateway.port()), /^HTTP\/1\.1 404/);
  assert.match(await upgradeRefused(gateway.port(), "Authorization: a\r\nAuthorization: b\r\n"), /^HTTP\/1\.1 400/);
});

test("a backend that cannot be reached is 502 for an upgrade too", async (t) => {
  const gateway = await gatewayFor(t, config("127.0.0.1:1"));
  assert.match(await upgradeRefused(gateway.port()), /^HTTP\/1\.1 502/);
});

test("open conversations are cut when the gateway stops, and none is left behind", async (t) => {
  const { backend, sockets } = await echoBackend(t);
  const gateway = await gatewayFor(t, config(backend.host));
  const clients: RawClient[] = [];
  for (let i = 0; i < 5; i++) {
    const client = openRawClient(gateway.port());
    client.write(`${HANDSHAKE}\r\n`);
    await client.until("hello");
    clients.push(client);
  }
  const stopping = gateway.app.stop();
  await gateway.app.stop();
  await stopping;
  for (const client of clients) await client.ended();
  await eventually("the backend's sides are closed", () => sockets.every((socket) => socket.destroyed));
});

async function upgradeRefused(port: number, headers = ""): Promise<string> {
  const client = openRawClient(port);
  client.write(`${HANDSHAKE}${headers}\r\n`);
  return (await client.ended()).text;
}
