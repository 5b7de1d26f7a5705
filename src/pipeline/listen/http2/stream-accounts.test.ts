import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { largestAccount, StreamPool } from "../../../base/memory-budget.ts";
import { StreamAccounts, type StreamCharge } from "./stream-accounts.ts";

const KIB = 1024;
/** A client has half of it. */
const POOL_BYTES = 1024 * KIB;

/** Connections of clients, whose streams end when they are cut, as those of a listener do. */
function openConnections(pool: StreamPool, count: number) {
  return Array.from({ length: count }, () => {
    const open = new Set<StreamCharge>();
    const accounts = new StreamAccounts(pool, (cut) => {
      for (const charge of [...open]) if (charge.client === cut) end(charge);
    });
    const end = (charge: StreamCharge): void => {
      if (open.delete(charge)) accounts.release(charge);
    };
    return {
      open,
      end,
      begin: (client: string, headBytes: number) => void open.add(accounts.charge(client, headBytes)),
    };
  });
}

test("after any opening and ending of streams the pool is within its limit, and empty in the end", () => {
  const step = fc.record({
    connection: fc.nat(3),
    client: fc.constantFrom("a", "b"),
    headBytes: fc.nat(32 * KIB),
    ends: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 150 }), (steps) => {
      const pool = new StreamPool(POOL_BYTES, largestAccount);
      const connections = openConnections(pool, 4);
      for (const { connection, client, headBytes, ends } of steps) {
        const { open, end, begin } = connections[connection] as (typeof connections)[number];
        const [first] = open;
        if (ends && first !== undefined) end(first);
        else begin(client, headBytes);
        const openBytes = connections.reduce(
          (sum, { open }) => sum + [...open].reduce((all, { bytes }) => all + bytes, 0),
          0,
        );
        // Two connections may each be the only one of a client, and each account is rounded down by up to 64 KiB.
        assert.ok(openBytes - pool.usedBytes <= 8 * 64 * KIB);
      }
      for (const { open, end } of connections) for (const charge of [...open]) end(charge);
      assert.deepEqual([pool.usedBytes, pool.clients], [0, 0]);
    }),
    { seed: 1, numRuns: 200 },
  );
});

test("the largest connection of the client that exceeds its share is cut, others keep their streams", () => {
  const pool = new StreamPool(POOL_BYTES, largestAccount);
  const [other, small, large, next] = openConnections(pool, 4);
  for (let i = 0; i < 20; i++) other?.begin("other", 0);
  for (let i = 0; i < 5; i++) small?.begin("client", 0);
  for (let i = 0; i < 24; i++) large?.begin("client", 0);
  for (let i = 0; i < 12; i++) next?.begin("client", 0);
  assert.deepEqual([other?.open.size, small?.open.size, large?.open.size, next?.open.size], [20, 5, 0, 12]);
});

test("a few streams of a connection are not charged, and large heads are", () => {
  const pool = new StreamPool(POOL_BYTES, largestAccount);
  const [connection] = openConnections(pool, 1);
  for (let i = 0; i < 3; i++) connection?.begin("client", 100);
  assert.equal(pool.usedBytes, 0);
  connection?.begin("client", 100);
  assert.equal(pool.usedBytes, 64 * KIB);
  connection?.begin("client", 48 * KIB);
  assert.equal(pool.usedBytes, 128 * KIB);
});

test("a connection remembers no clients without streams but the latest", () => {
  const pool = new StreamPool(POOL_BYTES, largestAccount);
  const accounts = new StreamAccounts(pool, () => undefined);
  for (let i = 0; i < 100; i++) {
    const first = accounts.charge(`client ${i}`, 0);
    const second = accounts.charge(`client ${i + 1}`, 0);
    accounts.release(first);
    accounts.release(second);
    assert.equal(accounts.clients, 1);
  }
});
