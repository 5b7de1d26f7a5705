import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { openRawClient } from "../../../test/support/raw-client.ts";
import { LinkedList } from "../../base/linked-list.ts";
import { StreamPool } from "../../base/memory-budget.ts";
import type { RequestBody } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { ClientConnection } from "./client-connection.ts";
import { watchIdle } from "./idle.ts";
import type { ConnectionOwner } from "./open-connections.ts";
import type { EntrySink } from "./request-entry.ts";

const POOL_BYTES = 1024 * 1024;

test("a reader of an earlier body neither stops nor charges the next request of its connection [R50]", async (t) => {
  const clock = fakeClock();
  const waitingBytes = new StreamPool(POOL_BYTES);
  const bodies: RequestBody[] = [];
  const targets: string[] = [];
  const owner: ConnectionOwner = {
    clock,
    idle: watchIdle(clock),
    waitingBytes,
    openStreams: new StreamPool(POOL_BYTES),
    maxStreamsPerAddress: 1,
    streamShare: () => assert.fail("HTTP/2"),
    isFull: () => false,
    streams: new LinkedList(),
    sweepMs: 1_000,
    sweeps: 0,
    headersTimeoutMs: 10_000,
    silentPeerMs: 10_000,
    speaksHttp2: false,
    acceptsConnect: false,
    isDraining: () => false,
    closesKept: () => false,
    begin({ target }, body, response: EntrySink) {
      targets.push(target);
      bodies.push(body);
      response.head(200, new HeaderList(["content-length", "0"]));
      response.end();
    },
    reject: () => assert.fail("rejected"),
    ended: () => undefined,
    closed: () => undefined,
    becomeHttp2: () => assert.fail("HTTP/2"),
    join: () => assert.fail("a tunnel"),
    unexpected: (error) => assert.fail(error as Error),
  };
  const server = createServer((socket) => new ClientConnection(socket, owner)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = openRawClient((server.address() as AddressInfo).port);
  t.after(() => {
    client.close();
    server.close();
  });
  client.write("POST /1 HTTP/1.1\r\nHost: a\r\ncontent-length: 10\r\n\r\n12345");
  await client.until("200 OK");
  const [first] = bodies;
  assert.ok(first?.kind === "stream");
  first.stream.pause();
  first.stream.queued?.(10 * POOL_BYTES);
  assert.equal(waitingBytes.usedBytes, 0);
  client.write("67890GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.until(
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: keep-alive\r\nkeep-alive: timeout=65\r\n\r\nHTTP/1.1 200 OK",
  );
  assert.deepEqual(targets, ["/1", "/2"]);
});
