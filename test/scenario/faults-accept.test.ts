/**
 * A client with many busy and many new connections (row R34 of the threat table): the connection of another client that
 * comes last is accepted and served after a few requests of each busy connection, not after one round of all for each
 * connection before it. Requests are counted, so that the speed of the machine does not matter.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";

const BUSY = 100;
const WAITING = 150;
/** Without accepting first, the last connection waits for 80 rounds or more. */
const MAX_ROUNDS = 30;
const PIPELINED = "GET /busy HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500);

let backend: TestBackend;
let gateway: TestGateway;
let busyRequests = 0;
const sockets: Socket[] = [];

before(async () => {
  backend = await startBackend((req, res) => {
    if (req.url === "/busy") busyRequests += 1;
    res.end("ok");
  });
  gateway = await startGateway(
    `config: { logging: { level: "error" } }\ngateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
});

after(async () => {
  for (const socket of sockets) socket.destroy();
  await gateway.close();
  await backend.close();
});

function open(): Socket {
  const socket = connect(gateway.port("default"), "127.0.0.1");
  socket.on("error", () => undefined);
  sockets.push(socket);
  return socket;
}

test("a new client does not wait for a round of all busy connections for each connection before it [R34]", async () => {
  for (let i = 0; i < BUSY; i++) {
    const socket = open();
    socket.resume();
    const send = (): void => {
      while (!socket.destroyed && socket.write(PIPELINED));
    };
    socket.on("connect", send).on("drain", send);
  }
  await eventually("all connections are busy", () => busyRequests > 20 * BUSY);
  // All in one turn: they are in the backlog before the first of them is accepted.
  for (let i = 0; i < WAITING; i++) open();
  const last = open();
  last.write("GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
  const beforeLast = busyRequests;
  const [answer] = (await once(last, "data")) as [Buffer];
  const rounds = (busyRequests - beforeLast) / BUSY;
  assert.match(answer.toString("latin1"), /^HTTP\/1\.1 200 /);
  assert.ok(rounds <= MAX_ROUNDS, `${rounds} rounds`);
});
