import assert from "node:assert/strict";
import { test } from "node:test";
import { InOrder } from "./in-order.ts";
import type { Steps } from "./sliced-work.ts";

function* work<T>(steps: number, result: T): Steps<T> {
  for (let i = 0; i < steps; i++) yield;
  return result;
}

function recorded(isOver: () => boolean = () => false) {
  const told: string[] = [];
  const order = new InOrder({
    busy: () => told.push("busy"),
    idle: () => told.push("idle"),
    failed: () => told.push("failed"),
    isOver,
  });
  const add = (name: string, isSmall: boolean) => order.run(work(50, name), isSmall, (result) => told.push(result));
  return { order, told, add };
}

/** Large work continues in later turns of the event loop. */
async function settled(order: InOrder): Promise<void> {
  while (order.isBusy) await new Promise<void>((resolve) => setImmediate(resolve));
}

test("small work is done immediately", () => {
  const { told, add, order } = recorded();
  add("a", true);
  order.afterwards(() => told.push("end"));
  add("b", true);
  assert.deepEqual(told, ["a", "end", "b"]);
});

test("work after large work waits for it in order, including more large work and the end", async () => {
  const { told, add, order } = recorded();
  add("a", true);
  add("B", false);
  add("c", true);
  add("D", false);
  add("e", true);
  order.afterwards(() => told.push("end"));
  assert.deepEqual([told, order.isBusy], [["a", "busy"], true]);
  await settled(order);
  assert.deepEqual(told, ["a", "busy", "B", "c", "busy", "D", "e", "end", "idle"]);
  add("f", true);
  assert.equal(told.at(-1), "f");
});

test("canceled work is dropped together with the work that waits for it", async () => {
  let isOver = false;
  const { told, add } = recorded(() => isOver);
  add("A", false);
  add("b", true);
  isOver = true;
  for (let i = 0; i < 5; i++) await new Promise<void>((resolve) => setImmediate(resolve));
  assert.deepEqual(told, ["busy"]);
});

test("work that throws is reported", async () => {
  const { told, order } = recorded();
  // biome-ignore lint/correctness/useYield: it throws before the first yield
  const broken = function* (): Steps<string> {
    throw new Error("broken");
  };
  order.run(broken(), false, () => assert.fail());
  for (let i = 0; i < 5; i++) await new Promise<void>((resolve) => setImmediate(resolve));
  assert.deepEqual(told, ["busy", "failed"]);
});
