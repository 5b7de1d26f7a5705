import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createExportQueue } from "./otlp-export.ts";

function setUp(limits = { items: 4, bytes: 20, batch: 2, batchBytes: 8, delayMs: 1_000 }) {
  const clock = fakeClock();
  const sent: { items: string[]; resolve(): void; reject(error: Error): void }[] = [];
  const events: string[] = [];
  const queue = createExportQueue<string>({
    clock,
    limits,
    bytesOf: (item) => item.length,
    send: (items) => new Promise((resolve, reject) => void sent.push({ items, resolve, reject })),
    dropped: (count, reason) => void events.push(`dropped ${count} ${reason}`),
    exported: (count) => void events.push(`exported ${count}`),
    changed: (failure) => void events.push(failure === undefined ? "works" : `fails: ${failure.message}`),
  });
  return { clock, sent, events, queue };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test("a few wait for the delay, a whole batch does not", async () => {
  const { clock, sent, queue } = setUp();
  queue.add("a");
  assert.equal(sent.length, 0);
  await clock.advance(1_000);
  assert.deepEqual(sent[0]?.items, ["a"]);
  sent[0]?.resolve();
  await settle();
  queue.add("b");
  queue.add("c");
  assert.deepEqual(sent[1]?.items, ["b", "c"]);
});

test("while an export runs, at most `items` wait; the rest is counted as dropped", async () => {
  const { sent, events, queue } = setUp();
  for (const item of ["a", "b", "c", "d", "e", "f", "g", "h"]) queue.add(item);
  assert.deepEqual(sent[0]?.items, ["a", "b"]);
  assert.equal(queue.size, 4);
  assert.deepEqual(events, ["dropped 1 queue_full", "dropped 1 queue_full"]);
  sent[0]?.resolve();
  await settle();
  assert.deepEqual(sent[1]?.items, ["c", "d"], "one export at a time");
  assert.equal(sent.length, 2);
});

test("a batch has at most `batchBytes` but at least one item, and at most `bytes` wait or are being sent", async () => {
  const { sent, events, queue } = setUp();
  queue.add("a".repeat(12));
  assert.equal(sent[0]?.items.length, 1);
  queue.add("b".repeat(7));
  queue.add("cc");
  assert.deepEqual(events, ["dropped 1 queue_full"]);
  queue.add("d");
  sent[0]?.resolve();
  await settle();
  assert.deepEqual(sent[1]?.items, ["b".repeat(7), "d"]);
  queue.add("e".repeat(7));
  queue.add("ff");
  sent[1]?.resolve();
  await settle();
  assert.deepEqual(sent[2]?.items, ["e".repeat(7)]);
  assert.equal(queue.size, 1);
});

test("what a collector does not take is dropped and counted; the log hears of the change only", async () => {
  const { clock, sent, events, queue } = setUp();
  for (const [index, item] of ["a", "b", "c"].entries()) {
    queue.add(item);
    await clock.advance(1_000);
    if (index < 2) sent[index]?.reject(new Error("refused"));
    else sent[index]?.resolve();
    await settle();
  }
  assert.deepEqual(events, [
    "dropped 1 export_failed",
    "fails: refused",
    "dropped 1 export_failed",
    "exported 1",
    "works",
  ]);
});

test("closing sends what waits", async () => {
  const { sent, events, queue } = setUp();
  queue.add("a");
  const closed = queue.close(500);
  assert.deepEqual(sent[0]?.items, ["a"]);
  sent[0]?.resolve();
  await closed;
  assert.deepEqual(events, ["exported 1"]);
  queue.add("late");
  assert.equal(events.at(-1), "dropped 1 queue_full");
});

test("closing does not wait longer than its limit", async () => {
  const { clock, events, queue } = setUp();
  for (const item of ["a", "b", "c"]) queue.add(item);
  const closed = queue.close(500);
  await clock.advance(500);
  await closed;
  assert.deepEqual(events, ["dropped 1 queue_full"]);
});
