/**
 * The safe edge, one connection at a time: clients that wait for 100 Continue, leave, do not close, or send on after a
 * refusal.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openRawClient } from "../support/raw-client.ts";
import { behindGateway } from "../support/scenario.ts";
import { openConnections } from "../support/under-way.ts";

let backend: TestBackend;
let gateway: TestGateway;

before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: direct
    matches: [{ path: { pathPrefix: /direct } }]
    policies: { directResponse: { body: hello } }
  - name: all
    backends: [{ host: ${backend.host} }]
`);
});
after(async () => {
  await gateway.close();
  await backend.close();
});

test("a client that waits for 100 Continue is refused before it sends its body", async () => {
  const client = openRawClient(gateway.port());
  client.write("POST /a/../b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  const answer = await client.ended();
  assert.deepEqual(answer.statuses, [400]);
});

test("a client that waits for 100 Continue is asked for its body only when it is wanted", async () => {
  const client = openRawClient(gateway.port());
  client.write(
    "POST /up HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
  );
  await client.until("HTTP/1.1 100 Continue\r\n\r\n");
  client.write("hello");
  const answer = await client.ended();
  assert.match(answer.text, /HTTP\/1\.1 200 OK/);
  assert.equal(backend.received.at(-1)?.body, "hello");
  assert.equal(backend.received.at(-1)?.headers.expect, undefined);
});

test("an answer that needs no body does not ask for it", async () => {
  const client = openRawClient(gateway.port());
  client.write("POST /direct HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 500000\r\n\r\n");
  const answer = await client.ended();
  assert.deepEqual(answer.statuses, [200]);
  assert.match(answer.text, /hello$/);
});

test("a client that is still sending a big body when it is refused can read the refusal", async () => {
  const client = openRawClient(gateway.port());
  client.write("POST /x%00y HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
  client.write(Buffer.alloc(8_000_000));
  const answer = await client.ended();
  assert.deepEqual(answer.statuses, [400]);
  assert.match(answer.text, /NUL character/);
});

test("a malformed body breaks its own request only, and never mixes an error into an answer", async () => {
  const client = openRawClient(gateway.port());
  client.write("POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n");
  const answer = await client.ended();
  assert.deepEqual(answer.statuses, [400]);
});

test("a refused connection is not kept open by a client that does not close its side", async (t) => {
  const clock = fakeClock();
  const { gateway: own } = await behindGateway(t, undefined, "", { clock });
  const client = openRawClient(own.port());
  t.after(() => client.close());
  client.write("NONSENSE\r\n\r\n");
  const ended = new Promise((resolve) => client.socket.once("end", resolve));
  await client.until("400");
  await ended;
  assert.equal(await openConnections(own), 1);
  // The client goes on holding its half open; the gateway lets go of its own.
  await clock.advance(5_000);
  await eventually("the gateway lets go of the connection", async () => (await openConnections(own)) === 0);
});

test("a client that leaves in the middle of an upgrade does not end the gateway", async () => {
  const hanging = await startBackend(() => undefined);
  hanging.server.on("upgrade", (_req, socket) => socket.on("end", () => socket.end()).resume());
  const own = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${hanging.host}" }] }]`,
  );
  try {
    for (let i = 0; i < 5; i++) {
      const client = openRawClient(own.port());
      client.write(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
      );
      await new Promise((resolve) => hanging.server.once("upgrade", resolve));
      client.reset();
    }
    const alive = await fetch(`${own.adminUrl}/healthz/live`);
    assert.equal(alive.status, 200);
  } finally {
    await own.close();
    await hanging.close();
  }
});
