/**
 * Upgraded connections from their first byte to their last: either side's end is passed on and ends the tunnel, a
 * silent one ends, and when the gateway stops both sides are told. Nothing is left open.
 */
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { ADMIN_PATHS } from "../../src/admin/server/paths.ts";
import { closeFrame } from "../../src/http/websocket-frames.ts";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import type { TestGateway } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { openRawClient, type RawClient } from "../support/raw-client.ts";
import { gatewayFor } from "../support/scenario.ts";

const UPGRADE =
  "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

interface Backend {
  readonly host: string;
  readonly sockets: Socket[];
  /** What came after the request's head, per connection. */
  received(index: number): string;
}

/** Takes every upgrade and then does what the test says: it never closes by itself, not even after the other side. */
async function stubbornBackend(t: TestContext): Promise<Backend> {
  const sockets: Socket[] = [];
  const texts: string[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const index = sockets.push(socket) - 1;
    texts[index] = "";
    socket.on("error", () => undefined);
    let isUpgraded = false;
    socket.on("data", (chunk) => {
      texts[index] += chunk.toString("latin1");
      if (isUpgraded || !texts[index]?.includes("\r\n\r\n")) return;
      isUpgraded = true;
      texts[index] = texts[index]?.split("\r\n\r\n").slice(1).join("\r\n\r\n") ?? "";
      socket.write(SWITCHED);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address() as { port: number };
  return { host: `127.0.0.1:${address.port}`, sockets, received: (index) => texts[index] ?? "" };
}

const config = (host: string, process = ""): string =>
  `config: { ${process} }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${host}" }] }]\n`;

async function openTunnel(port: number): Promise<RawClient> {
  const client = openRawClient(port);
  client.write(UPGRADE);
  await client.until("\r\n\r\n");
  return client;
}

async function activeOf(gateway: TestGateway): Promise<string> {
  const memory = (await (await fetch(`${gateway.adminUrl}${ADMIN_PATHS.memory}`)).json()) as {
    parts: { connections: { connections: number; requests: number } };
  };
  const { connections, requests } = memory.parts.connections;
  return `${connections} connections, ${requests} requests`;
}

test("200 clients that close leave nothing behind at a backend that never closes", async (t) => {
  const backend = await stubbornBackend(t);
  const gateway = await gatewayFor(t, config(backend.host));
  const clients = await Promise.all(Array.from({ length: 200 }, () => openTunnel(gateway.port())));
  assert.equal(await activeOf(gateway), "200 connections, 200 requests");
  for (const [i, client] of clients.entries()) {
    if (i % 4 === 0) client.reset();
    else if (i % 4 === 1) client.socket.end();
    else client.close();
  }
  await eventually("nothing is open", async () => (await activeOf(gateway)) === "0 connections, 0 requests");
  await eventually("the backend sees every end", () =>
    backend.sockets.every((one) => one.readableEnded || one.destroyed),
  );
});

test("a half-close is passed on at once, and the other direction still delivers", async (t) => {
  const backend = await stubbornBackend(t);
  const gateway = await gatewayFor(t, config(backend.host));
  const client = await openTunnel(gateway.port());
  client.socket.end("\x82\x03bye", "latin1");
  const [socket] = backend.sockets;
  assert.ok(socket);
  await eventually("the backend has the end", () => socket.readableEnded);
  assert.equal(backend.received(0), "\x82\x03bye");
  socket.end("\x82\x04last");
  assert.match((await client.ended()).text, /last$/);
  await eventually("nothing is open", async () => (await activeOf(gateway)) === "0 connections, 0 requests");
});

test("a backend that ends or breaks off ends the tunnel, with its last bytes delivered", async (t) => {
  for (const way of ["end", "destroy", "resetAndDestroy"] as const) {
    const backend = await stubbornBackend(t);
    const gateway = await gatewayFor(t, config(backend.host));
    const client = await openTunnel(gateway.port());
    const [socket] = backend.sockets;
    assert.ok(socket);
    if (way === "end") socket.write("\x82\x04last");
    socket[way]();
    const { text } = await client.ended();
    if (way === "end") assert.match(text, /last$/);
    await eventually("nothing is open", async () => (await activeOf(gateway)) === "0 connections, 0 requests");
  }
});

test("a silent tunnel ends after the idle limit, one that is used does not", async (t) => {
  const clock = fakeClock();
  const backend = await stubbornBackend(t);
  const gateway = await gatewayFor(t, config(backend.host, "tunnelIdleTimeout: 10m"), { clock });
  const silent = await openTunnel(gateway.port());
  const used = await openTunnel(gateway.port());
  for (let minute = 0; minute < 12; minute++) {
    const before = backend.received(1).length + backend.received(0).length;
    used.write("\x82\x81\0\0\0\0x");
    await eventually("the byte arrived", () => backend.received(0).length + backend.received(1).length > before);
    await clock.advance(60_000);
  }
  assert.ok((await silent.ended()).text.endsWith(closeFrame("server").toString("latin1")));
  assert.equal(used.socket.destroyed || used.socket.readableEnded, false);
  await eventually("one is left", async () => (await activeOf(gateway)) === "1 connections, 1 requests");
  used.close();
});

test("SIGTERM tells 100 tunnels to go, between two frames, and the exit code is 0", async (t) => {
  const backend = await stubbornBackend(t);
  const gateway = startGatewayProcess(t, [
    "-f",
    configFile(t, config(backend.host, "adminAddr: off, drainTimeout: 20s")),
  ]);
  const port = await gateway.port();
  const clients = await Promise.all(Array.from({ length: 100 }, () => openTunnel(port)));
  // The backend is in the middle of a frame on the first of them.
  backend.sockets[0]?.write("\x82\x05he");
  await eventually("half a frame is out", () => clients.some((client) => client.received().endsWith("he")));
  const half = clients.find((client) => client.received().endsWith("he"));
  gateway.child.kill("SIGTERM");
  await gateway.logged("draining");
  backend.sockets[0]?.write("llo\x82\x01!");
  const goodbye = closeFrame("server").toString("latin1");
  for (const client of clients) {
    const { text } = await client.ended();
    assert.ok(text.endsWith(client === half ? `hello${goodbye}` : goodbye), JSON.stringify(text.slice(-20)));
  }
  const exit = await gateway.exited;
  assert.deepEqual([exit.code, exit.signal, exit.stderr], [0, null, ""]);
  assert.ok(backend.sockets.every((_, i) => backend.received(i) === closeFrame("client").toString("latin1")));
});
