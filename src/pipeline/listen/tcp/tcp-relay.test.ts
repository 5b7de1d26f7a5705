import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../../test/support/fake-clock.ts";
import { MemorySocket } from "../../../../test/support/memory-socket.ts";
import { StreamPool } from "../../../base/memory-budget.ts";
import { watchIdle } from "../idle.ts";
import { TcpRelay } from "./tcp-relay.ts";

const IDLE_MS = 600_000;

function relay() {
  const clock = fakeClock();
  const pool = new StreamPool(1024 * 1024);
  const client = new MemorySocket();
  const backend = new MemorySocket();
  new TcpRelay(client, backend, {
    idle: watchIdle(clock),
    waitingBytes: pool,
    chargedTo: "192.0.2.1",
    idleLimitMs: IDLE_MS,
  });
  return { clock, pool, client, backend };
}

test("bytes go both ways, and each side can end on its own", async () => {
  const { clock, client, backend } = relay();
  client.arrive(Buffer.from("request"));
  client.arriveEnd();
  await clock.advance(0);
  assert.equal(backend.bytesWritten, 7);
  assert.equal(backend.writableEnded, true);
  assert.equal(client.destroyed, false);
  backend.arrive(Buffer.from("response"));
  await clock.advance(0);
  assert.equal(client.bytesWritten, 8);
});

test("a connection without data is closed, and data counts from either side", async () => {
  const { clock, client, backend } = relay();
  await clock.advance(IDLE_MS - 10_000);
  backend.arrive(Buffer.from("ping"));
  await clock.advance(IDLE_MS - 10_000);
  assert.equal(client.destroyed, false);
  await clock.advance(20_000);
  assert.deepEqual([client.destroyed, backend.destroyed], [true, true]);
});

test("a side that does not read holds few bytes and is closed earlier", async () => {
  const { clock, pool, client, backend } = relay();
  client.isStuck = true;
  for (let i = 0; i < 100; i++) {
    backend.arrive(Buffer.alloc(10_000));
    await clock.advance(0);
  }
  assert.ok(client.writableLength <= 100_000, `${client.writableLength} bytes wait`);
  assert.equal(pool.usedBytes, client.writableLength);
  await clock.advance(70_000);
  assert.deepEqual([client.destroyed, backend.destroyed], [true, true]);
});

test("a reset of one side closes the other and releases its bytes", async () => {
  const { clock, pool, client, backend } = relay();
  client.arriveReset();
  client.finishClosing();
  await clock.advance(0);
  assert.equal(backend.destroyed, true);
  backend.finishClosing();
  await clock.advance(0);
  assert.equal(pool.usedBytes, 0);
});
