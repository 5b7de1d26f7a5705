import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { aRow } from "../../../test/support/history/history-row.ts";
import { GATHER_MS, RowQueue } from "./history.ts";
import { batchOf, batchRows, type RowBatch } from "./row-batch.ts";

function aQueue(maxRows = 1_000) {
  const clock = fakeClock();
  const sent: string[][] = [];
  let dropped = 0;
  const queue = new RowQueue({
    clock,
    maxRows,
    redact: (text) => text,
    send: (batch) => sent.push(idsOf(batch)),
    dropped: (rows) => {
      dropped += rows;
    },
  });
  return { clock, queue, sent, dropped: () => dropped };
}

function aBatch(...ids: string[]): RowBatch {
  return batchOf(ids.map((id) => aRow({ id })));
}

function idsOf(batch: RowBatch): string[] {
  return batchRows(batch).map(([id]) => String(id));
}

test("rows are gathered into one batch", async () => {
  const { clock, queue, sent } = aQueue();
  queue.add(aRow({ id: "a" }));
  queue.add(aRow({ id: "b" }));
  assert.deepEqual(sent, []);
  await clock.advance(GATHER_MS);
  assert.deepEqual(sent, [["a", "b"]]);
  assert.equal(queue.rows, 2);
  queue.accepted();
  assert.equal(queue.rows, 0);
});

test("the next batch is sent when the previous one was accepted", () => {
  const { queue, sent } = aQueue();
  for (const batch of [aBatch("1"), aBatch("2", "3"), aBatch("4")]) queue.addBatch(batch);
  assert.deepEqual(sent, [["1"]]);
  queue.accepted();
  assert.deepEqual(sent, [["1"], ["2", "3"]]);
});

test("the oldest waiting rows are dropped if there are too many", () => {
  const { queue, sent, dropped } = aQueue(3);
  for (const batch of [aBatch("1"), aBatch("2", "3"), aBatch("4", "5")]) queue.addBatch(batch);
  assert.equal(dropped(), 2);
  queue.accepted();
  assert.deepEqual(sent, [["1"], ["4", "5"]]);
});

test("a batch that was not accepted is sent again", () => {
  const { queue, sent } = aQueue();
  queue.addBatch(aBatch("1"));
  queue.resend();
  assert.deepEqual(sent, [["1"], ["1"]]);
});

test("a callback waits until the rows before it were sent or dropped, and not for later rows", () => {
  const { queue, sent } = aQueue(2);
  const called: string[] = [];
  queue.whenSent(() => called.push("empty"));
  queue.addBatch(aBatch("a"));
  queue.add(aRow({ id: "b" }));
  queue.whenSent(() => called.push(`after b, of ${sent.length}`));
  queue.addBatch(aBatch("c"));
  assert.deepEqual(called, ["empty"]);
  queue.accepted();
  assert.deepEqual(called, ["empty", "after b, of 2"]);
  queue.whenSent(() => called.push("after c"));
  queue.addBatch(aBatch("d", "e"));
  assert.deepEqual(called.slice(2), ["after c"]);
});
