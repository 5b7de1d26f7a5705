import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { openRawClient } from "../../../test/support/raw-client.ts";
import { createIdSource } from "../../base/ids.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import type { RequestBody } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { ClientConnection } from "./client-connection.ts";
import { ListenerConnections } from "./listener.ts";
import { LISTENER_LIMITS, type ListenerEnv } from "./listener-env.ts";

const MANY_BYTES = 10 * 1024 * 1024;

test("a reader of an earlier body neither stops nor charges the next request of its connection [R50]", async (t) => {
  const clock = fakeClock();
  const bodies: RequestBody[] = [];
  const targets: string[] = [];
  const env: ListenerEnv = {
    clock,
    logger: silentLogger,
    ids: createIdSource(),
    limits: LISTENER_LIMITS,
    heap: { level: "normal", stop: () => undefined },
    memory: createMemoryBudget(clock),
    redaction: createRedaction(),
    random: () => 0.5,
    isTrustedPeer: () => false,
    trace: () => undefined,
    settled: () => undefined,
    defect: (_exchange, error) => assert.fail(error as Error),
    unexpected: (error) => assert.fail(error as Error),
    forwardToThread(_served, { request: { path, body } }, sink) {
      targets.push(path);
      bodies.push(body);
      sink.head(200, new HeaderList(["content-length", "0"]));
      sink.end();
      return true;
    },
  };
  const served = { listener: { name: "main" } } as unknown as Served;
  const owner = new ListenerConnections(env, "http", served);
  const server = createServer((socket) => new ClientConnection(socket, owner)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = openRawClient((server.address() as AddressInfo).port);
  t.after(() => {
    owner.destroy();
    client.close();
    server.close();
  });
  client.write("POST /1 HTTP/1.1\r\nHost: a\r\ncontent-length: 10\r\n\r\n12345");
  await client.until("200 OK");
  const [first] = bodies;
  assert.ok(first?.kind === "stream");
  first.stream.pause();
  first.stream.queued?.(MANY_BYTES);
  assert.equal(env.memory.streams.usedBytes, 0);
  client.write("67890GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
  await client.until(
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: keep-alive\r\nkeep-alive: timeout=65\r\n\r\nHTTP/1.1 200 OK",
  );
  assert.deepEqual(targets, ["/1", "/2"]);
});
