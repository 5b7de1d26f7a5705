import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { GATHER_MS, RowQueue } from "./row-queue.ts";

function aQueue(maxRows = 1_000) {
  const clock = fakeClock();
  const sent: string[] = [];
  let dropped = 0;
  const queue = new RowQueue({
    clock,
    maxRows,
    send: (text) => sent.push(text),
    dropped: (rows) => {
      dropped += rows;
    },
  });
  return { clock, queue, sent, dropped: () => dropped };
}

test("rows are gathered into one batch", async () => {
  const { clock, queue, sent } = aQueue();
  queue.add("a");
  queue.add("b");
  assert.deepEqual(sent, []);
  await clock.advance(GATHER_MS);
  assert.deepEqual(sent, ["a\nb"]);
  assert.equal(queue.rows, 2);
  queue.accepted();
  assert.equal(queue.rows, 0);
});

test("the next batch is sent when the previous one was accepted", () => {
  const { queue, sent } = aQueue();
  for (const batch of ["1", "2\n2", "3"]) queue.addBatch(batch);
  assert.deepEqual(sent, ["1"]);
  queue.accepted();
  assert.deepEqual(sent, ["1", "2\n2"]);
});

test("the oldest waiting rows are dropped if there are too many", () => {
  const { queue, sent, dropped } = aQueue(3);
  for (const batch of ["1", "2\n2", "3\n3"]) queue.addBatch(batch);
  assert.equal(dropped(), 2);
  queue.accepted();
  assert.deepEqual(sent, ["1", "3\n3"]);
});

test("a batch that was not accepted is sent again", () => {
  const { queue, sent } = aQueue();
  queue.addBatch("1");
  queue.resend();
  assert.deepEqual(sent, ["1", "1"]);
});
