import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Clock } from "../../base/clock.ts";
import { createThreadWatch, HEARTBEAT_BYTES, startHeartbeat } from "./thread-watch.ts";

function setUp() {
  const clock = fakeClock();
  const threadClock = fakeClock();
  const heartbeat = new SharedArrayBuffer(HEARTBEAT_BYTES);
  const seen: string[] = [];
  const thread = createThreadWatch(clock).watch(heartbeat, {
    slow: (seconds) => seen.push(`slow ${seconds}`),
    responsive: () => seen.push("responsive"),
    hung: (seconds) => seen.push(`hung ${seconds}`),
  });
  /** Lets time pass for the main thread and, if it runs, for the worker thread. */
  const pass = async (seconds: number, isRunning: boolean): Promise<void> => {
    for (let i = 0; i < seconds; i++) {
      if (isRunning) await threadClock.advance(1_000);
      await clock.advance(1_000);
    }
  };
  return { threadClock, heartbeat, seen, thread, pass };
}

test("a thread that is loading is not watched, and a running one is fine", async () => {
  const { threadClock, heartbeat, seen, pass } = setUp();
  await pass(100, false);
  startHeartbeat(threadClock, heartbeat);
  await pass(100, true);
  assert.deepEqual(seen, []);
});

test("a thread is slow after 5 s and hung after 30 s without a heartbeat", async () => {
  const { threadClock, heartbeat, seen, thread, pass } = setUp();
  startHeartbeat(threadClock, heartbeat);
  await pass(1, true);
  await pass(4, false);
  assert.deepEqual([seen, thread.isSlow], [[], false]);
  await pass(1, false);
  assert.deepEqual([seen, thread.isSlow], [["slow 5"], true]);
  await pass(1, true);
  assert.deepEqual([seen, thread.isSlow], [["slow 5", "responsive"], false]);
  await pass(29, false);
  assert.deepEqual(seen.slice(2), ["slow 5"]);
  await pass(31, false);
  assert.deepEqual(seen.slice(2), ["slow 5", "hung 30"]);
});

test("a pause of the whole process does not count", () => {
  let nowMs = 0;
  let check: () => void = () => undefined;
  const clock: Clock = {
    ...fakeClock(),
    monotonicMs: () => nowMs,
    every(_intervalMs, callback) {
      check = callback;
      return { cancel: () => undefined };
    },
  };
  const heartbeat = new SharedArrayBuffer(HEARTBEAT_BYTES);
  const fail = () => assert.fail("the process was paused");
  startHeartbeat(fakeClock(), heartbeat);
  createThreadWatch(clock).watch(heartbeat, { slow: fail, responsive: fail, hung: fail });
  for (let i = 0; i < 40; i++) {
    nowMs += 10_000;
    check();
  }
});

test("a thread that has ended is not reported", async () => {
  const { threadClock, heartbeat, seen, thread, pass } = setUp();
  startHeartbeat(threadClock, heartbeat);
  await pass(1, true);
  thread.stop();
  await pass(60, false);
  assert.deepEqual(seen, []);
});
