import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { collectAllGarbage } from "../../../test/support/garbage.ts";
import { Random } from "../../../test/support/random.ts";
import { MessagePool } from "../../base/memory-budget.ts";
import { OneWayLimits, type OneWayMessage, OneWayQueue } from "./one-way-queue.ts";

const CASES = 300;
const MAX_SENDING = 16;
const MAX_FOR_SERVER = 128;

interface Lane {
  readonly queue: OneWayQueue;
  readonly accepted: string[];
  readonly started: string[];
  readonly sending: OneWayMessage[];
}

function setUp(channels: number, poolBytes = 64 * 1024 * 1024) {
  const limits = new OneWayLimits();
  const pool = new MessagePool(poolBytes, fakeClock());
  const memory = pool.server();
  const lanes = Array.from({ length: channels }, (): Lane => {
    const started: string[] = [];
    const sending: OneWayMessage[] = [];
    const queue = new OneWayQueue(limits, memory, (queued) => {
      started.push(queued.message.text);
      sending.push(queued);
    });
    return { queue, accepted: [], started, sending };
  });
  return { limits, pool, lanes };
}

test(`${CASES} random runs: limits per channel and server hold, each channel keeps its order, and all is released`, () => {
  for (let seed = 0; seed < CASES; seed++) {
    const random = new Random(seed);
    const { limits, pool, lanes } = setUp(1 + random.int(20));
    for (let step = 0; step < 400; step++) {
      const lane = lanes[random.int(lanes.length)] as Lane;
      if (random.int(3) > 0) {
        const text = `${step} ${"x".repeat(random.int(20) === 0 ? random.int(200_000) : 10)}`;
        if (lane.queue.send({ text })) lane.accepted.push(text);
      } else {
        const [queued] = lane.sending.splice(random.int(lane.sending.length), 1);
        if (queued) lane.queue.release(queued);
      }
      const all = lanes.reduce((sum, { sending }) => sum + sending.length, 0);
      assert.ok(lanes.every(({ sending }) => sending.length <= MAX_SENDING) && all <= MAX_FOR_SERVER, `seed ${seed}`);
      assert.equal(limits.sending, all);
      // No message waits while its channel and the server have room.
      if (all < MAX_FOR_SERVER)
        for (const { sending, started, accepted } of lanes)
          assert.ok(sending.length === MAX_SENDING || started.length === accepted.length, `seed ${seed}`);
    }
    for (const { started, accepted } of lanes) assert.deepEqual(started, accepted.slice(0, started.length));
    for (const lane of lanes) if (random.int(2) === 0) lane.queue.close();
    while (lanes.some(({ sending }) => sending.length > 0))
      for (const { queue, sending } of lanes) for (const queued of sending.splice(0)) queue.release(queued);
    assert.deepEqual([limits.messages, limits.chars, limits.sending, pool.usedBytes], [0, 0, 0, 0]);
    for (const { queue } of lanes) assert.ok(queue.isEmpty);
  }
});

test("a channel holds 1,016 messages and 4 MiB, or one larger message", () => {
  const { lanes } = setUp(2);
  const [small, large] = lanes.map(({ queue }) => queue) as [OneWayQueue, OneWayQueue];
  let held = 0;
  while (small.send({ text: "x" })) held += 1;
  assert.equal(held, 1_016);
  assert.equal(large.send({ text: "x".repeat(5 * 1024 * 1024) }), true);
  assert.equal(large.send({ text: "x" }), false);
});

test("channels of a server that accepts nothing hold 4,096 messages together, and each at least 4", () => {
  const { limits, lanes } = setUp(100);
  for (const { queue } of lanes) while (queue.send({ text: "x" }));
  assert.equal(limits.messages, 4 * 1_016 + 32 + 4 * 95);
  assert.equal(limits.sending, MAX_FOR_SERVER);
});

test("after one channel took all turns, each other channel sends one message before it sends another", () => {
  const { lanes } = setUp(10);
  const [first, ...others] = lanes as [Lane, ...Lane[]];
  for (const { queue } of lanes.slice(0, 8)) for (let i = 0; i < 20; i++) queue.send({ text: "x" });
  for (const { queue } of lanes.slice(8)) queue.send({ text: "x" });
  assert.deepEqual(
    others.slice(7).map(({ started }) => started.length),
    [0, 0],
  );
  for (let i = 0; i < 3; i++) first.queue.release(first.sending.shift() as OneWayMessage);
  assert.deepEqual(
    others.slice(7).map(({ started }) => started.length),
    [1, 1],
  );
});

test("large messages that do not fit the memory of all servers are rejected", () => {
  const { pool, lanes } = setUp(3, 8 * 1024 * 1024);
  const sent = lanes.map(({ queue }) => queue.send({ text: "x".repeat(2 * 1024 * 1024) }));
  assert.deepEqual(sent, [true, false, false]);
  assert.ok(pool.usedBytes <= pool.limitBytes);
});

test("a queue that is never empty retains no message that was sent", async () => {
  const { lanes } = setUp(1);
  const sent = sendWithoutPause(lanes[0] as Lane, 5_000);
  await collectAllGarbage();
  assert.equal(sent.filter((reference) => reference.deref() !== undefined).length, 0);
});

function sendWithoutPause({ queue, sending, started }: Lane, messages: number): WeakRef<OneWayMessage>[] {
  const sent: WeakRef<OneWayMessage>[] = [];
  for (let i = 0; i < messages; i++) {
    queue.send({ text: `${i}` });
    // Five more messages than can be sent at once always wait.
    if (i < MAX_SENDING + 5) continue;
    const first = sending.shift() as OneWayMessage;
    sent.push(new WeakRef(first));
    queue.release(first);
  }
  assert.equal(queue.isEmpty, false);
  assert.equal(started.length, messages - 5);
  return sent;
}
