/**
 * A tab that is opened in the background reads each value once.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createPoll } from "../../ui/src/data/poll.ts";

test("a hidden tab reads a value once", async (context) => {
  const global = globalThis as { document?: unknown };
  global.document = { visibilityState: "hidden" };
  context.after(() => delete global.document);
  let timers: (() => void)[] = [];
  context.mock.method(globalThis, "setTimeout", (fire: () => void) => timers.push(fire));
  let reads = 0;
  const poll = createPoll(async () => {
    reads += 1;
    return reads;
  }, 1_000);
  const stop = poll.watch();
  await poll.refresh();
  await Promise.resolve();
  assert.equal(poll.value.value, 1);
  const due = timers;
  timers = [];
  assert.equal(due.length, 1);
  for (const fire of due) fire();
  assert.equal(reads, 1);
  stop();
});
