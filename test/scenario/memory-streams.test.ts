/**
 * Bytes that wait in stream buffers because a peer does not read are bounded in sum, for each kind of stream. The clock
 * stands still, so no timeout closes a connection.
 */
import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const KIB = 1024;
const PIECE = Buffer.alloc(64 * KIB, "x");
/** More than the buffers of the system take for a connection through the gateway. */
const MUCH_BYTES = 40 * KIB * KIB;
const CONNECTIONS = 4;
/** One client has half of it. A stream that waits has more than that, 16 KiB, in its buffer. */
const SMALL_LIMIT = 32 * KIB;

const HANDSHAKE =
  "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/** A backend that reads nothing, or sends without end (`/endless`), or answers (`/fast`), with upgrades that read nothing. */
async function gatewayWith(t: TestContext, streamBytes: number, config = ""): Promise<TestGateway> {
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/fast") res.end("ok");
    if (req.url !== "/endless") return;
    const write = (): void => {
      while (!res.destroyed && res.write(PIECE));
    };
    res.on("drain", write);
    write();
  });
  const tunnels: Duplex[] = [];
  backend.server.on("upgrade", (_req, socket: Duplex) => {
    tunnels.push(socket);
    socket.on("error", () => undefined);
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
  });
  t.after(() => {
    for (const tunnel of tunnels) tunnel.destroy();
  });
  const yaml = `${config}gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { matches: [{ path: { pathPrefix: /unread } }], backends: [{ host: "${backend.host}" }], policies: { extAuthz: { url: "http://${backend.host}/check" } } }
  - { backends: [{ host: "${backend.host}" }] }
`;
  return gatewayFor(t, yaml, { clock: fakeClock(), memoryLimits: { streamBytes } });
}

interface Connections {
  /** The connections that the gateway closed, in this order. */
  readonly closed: readonly number[];
}

/** Opens connections one after the other from one address. */
function openConnections(t: TestContext, port: number, begin: (socket: Socket) => void): Connections {
  const closed: number[] = [];
  for (let number = 0; number < CONNECTIONS; number++) {
    const socket = connect({ port, host: "127.0.0.1", localAddress: "127.0.0.66" });
    socket.on("error", () => undefined);
    socket.on("close", () => closed.push(number));
    begin(socket);
    t.after(() => socket.destroy());
  }
  return { closed };
}

function pour(socket: Duplex): void {
  let leftBytes = MUCH_BYTES;
  const write = (): void => {
    while (leftBytes > 0 && !socket.destroyed) {
      leftBytes -= PIECE.length;
      if (!socket.write(PIECE)) return;
    }
  };
  socket.on("drain", write);
  write();
}

async function isServed(gateway: TestGateway): Promise<boolean> {
  const response = await fetch(`http://127.0.0.1:${gateway.port()}/fast`);
  return (await response.text()) === "ok";
}

const kinds: readonly [name: string, begin: (socket: Socket) => void][] = [
  [
    "uploads that the backend does not read",
    (socket) => {
      socket.write(`POST /deaf HTTP/1.1\r\nHost: a\r\ncontent-length: ${MUCH_BYTES}\r\n\r\n`);
      pour(socket);
    },
  ],
  [
    "chunked uploads that the backend does not read",
    (socket) => {
      socket.write("POST /deaf HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n");
      const chunks = Buffer.from(`${"1\r\nx\r\n".repeat(10)}2000\r\n${"y".repeat(8 * KIB)}\r\n`.repeat(8));
      const write = (): void => {
        while (!socket.destroyed && socket.write(chunks));
      };
      socket.on("drain", write);
      write();
    },
  ],
  [
    "tunnels that the backend does not read",
    (socket) => {
      socket.write(HANDSHAKE);
      socket.once("data", () => pour(socket));
    },
  ],
];

for (const [name, begin] of kinds)
  test(`${name} are bounded in sum, and other clients are served [R50]`, async (t) => {
    const gateway = await gatewayWith(t, SMALL_LIMIT);
    const { closed } = openConnections(t, gateway.port(), begin);
    // One stream alone may exceed the share of its client.
    await eventually("all but one were closed", () => closed.length === CONNECTIONS - 1);
    assert.ok(await isServed(gateway));
  });

test("responses that clients do not read are bounded in sum, and other clients are served [R50]", async (t) => {
  const gateway = await gatewayWith(t, SMALL_LIMIT);
  openConnections(t, gateway.port(), (socket) => {
    socket.pause();
    socket.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
  });
  // A client that does not read does not notice that its connection was closed, but the access log has it.
  const cut = (): number => gateway.log().filter((line) => line.includes("path=/endless")).length;
  await eventually("all but one were closed", () => cut() === CONNECTIONS - 1);
  assert.ok(await isServed(gateway));
});

/** One HTTP/2 body at a time, each with more data than its window. Returns the streams that were reset. */
async function sendBodies(t: TestContext, gateway: TestGateway, clients: readonly string[]) {
  const session = connectHttp2(`http://127.0.0.1:${gateway.port()}`);
  session.on("error", () => undefined);
  t.after(() => session.destroy());
  const reset: string[] = [];
  for (const client of clients) {
    const stream = session.request({
      ":method": "POST",
      ":path": "/unread",
      "x-forwarded-for": client.replace(/ .*/, ""),
      "content-length": String(MUCH_BYTES),
    });
    stream.on("error", () => undefined);
    stream.on("close", () => reset.push(client));
    pour(stream);
  }
  return reset;
}

test("HTTP/2 bodies that are not read yet are bounded in sum, and other clients are served [R50]", async (t) => {
  const gateway = await gatewayWith(t, 380 * KIB);
  // Each is charged its window of 64 KiB and the first frame, so the share of the client has room for two.
  const reset = await sendBodies(t, gateway, ["1", "2", "3", "4", "5"]);
  await eventually("three were reset", () => reset.length === 3);
  assert.ok(await isServed(gateway));
  assert.equal(reset.length, 3);
});

test("clients behind a trusted proxy have a share each [A30]", async (t) => {
  const gateway = await gatewayWith(t, 380 * KIB, "config: { trustedProxies: [127.0.0.0/8] }\n");
  const [a, b] = ["192.0.2.1", "192.0.2.2"] as const;
  const reset = await sendBodies(t, gateway, [`${a} 1`, `${b} 1`, `${a} 2`, `${b} 2`, `${a} 3`]);
  await eventually("one was reset", () => reset.length > 0);
  assert.ok(await isServed(gateway));
  assert.deepEqual(
    reset.map((name) => name.startsWith(a)),
    [true],
  );
});
