import assert from "node:assert/strict";
import { test } from "node:test";
import type { TraceEvent } from "../../record/trace/record.ts";
import { createTraceStore } from "./trace-screen.tsx";

const event: TraceEvent = { eventStart: null, eventEnd: 1, severity: "info", message: { type: "requestStarted" } };

test("the state stays the same object until something changes", () => {
  const store = createTraceStore();
  const before = store.state();
  assert.equal(store.state(), before);
  store.add(event);
  assert.notEqual(store.state(), before);
  assert.deepEqual(before.events, []);
  assert.deepEqual(store.state(), { events: [event], status: "1 event", isComplete: false });
});

test("many events at once notify subscribers once", async () => {
  const store = createTraceStore();
  let notified = 0;
  const leave = store.subscribe(() => {
    notified += 1;
  });
  for (let i = 0; i < 1000; i++) store.add(event);
  store.complete();
  await Promise.resolve();
  assert.equal(notified, 1);
  assert.equal(store.state().status, "1000 events, complete");
  leave();
  store.status("later\nand more");
  await Promise.resolve();
  assert.equal(notified, 1);
  assert.equal(store.state().status, "later");
});
