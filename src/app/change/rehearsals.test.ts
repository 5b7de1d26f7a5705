import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createRehearsals, RehearsalBusy, type RehearsalThread } from "./rehearsals.ts";
import type { Rehearsal } from "./rehearse.ts";

const FOUND: Rehearsal = { ok: false, problems: ["of the thread"] };
const SOURCE = { file: "a.yaml", text: "nonsense: true" };
const DATA = { input: { before: undefined, after: [SOURCE], environment: {} }, segments: [] };

class FakeThread extends EventEmitter {
  isEnded = false;
  isHeld = true;
  asked = 0;
  postMessage(): void {
    this.asked += 1;
  }
  async terminate(): Promise<number> {
    this.isEnded = true;
    this.emit("exit", 1);
    return 1;
  }
  ref(): void {
    this.isHeld = true;
  }
  unref(): void {
    this.isHeld = false;
  }
}

function rehearsalsOf() {
  const clock = fakeClock();
  const threads: FakeThread[] = [];
  const rehearsals = createRehearsals(clock, () => {
    const thread = new FakeThread();
    threads.push(thread);
    return thread as unknown as RehearsalThread;
  });
  const threadAt = (index: number): FakeThread => {
    const thread = threads[index];
    assert.ok(thread);
    return thread;
  };
  return { clock, threads, rehearsals, threadAt };
}

test("the thread stays for the next rehearsal, does not hold the process, and ends after a minute", async () => {
  const { clock, threads, rehearsals, threadAt } = rehearsalsOf();
  for (let i = 0; i < 2; i++) {
    const found = rehearsals.run(DATA);
    assert.equal(threadAt(0).isHeld, true);
    await assert.rejects(rehearsals.run(DATA), RehearsalBusy);
    threadAt(0).emit("message", FOUND);
    assert.equal(await found, FOUND);
    assert.equal(threadAt(0).isHeld, false);
    await clock.advance(30_000);
  }
  assert.deepEqual([threads.length, threadAt(0).asked, threadAt(0).isEnded], [1, 2, false]);
  await clock.advance(30_001);
  assert.equal(threadAt(0).isEnded, true);
  void rehearsals.run(DATA);
  assert.equal(threads.length, 2);
});

test("a rehearsal that never ends is ended, and the next has a thread of its own", async () => {
  const { clock, rehearsals, threadAt } = rehearsalsOf();
  const found = rehearsals.run(DATA);
  const rejected = assert.rejects(found, /took longer than 60000 ms/);
  await clock.advance(60_001);
  await rejected;
  assert.equal(threadAt(0).isEnded, true);
  const next = rehearsals.run(DATA);
  threadAt(1).emit("message", FOUND);
  assert.equal(await next, FOUND);
});

test("what ends a kept thread is no reason to work on the thread that serves", async () => {
  const { rehearsals, threadAt } = rehearsalsOf();
  const first = rehearsals.run(DATA);
  threadAt(0).emit("online");
  threadAt(0).emit("message", FOUND);
  await first;
  const second = rehearsals.run(DATA);
  threadAt(0).emit("error", new Error("out of memory"));
  await assert.rejects(second, /out of memory/);
});

test("a kept thread that ends on its own is forgotten", async () => {
  const { rehearsals, threads, threadAt } = rehearsalsOf();
  const first = rehearsals.run(DATA);
  threadAt(0).emit("message", FOUND);
  await first;
  threadAt(0).emit("error", new Error("later"));
  threadAt(0).emit("exit", 1);
  void rehearsals.run(DATA);
  assert.equal(threads.length, 2);
});

test("without a thread the rehearsal runs here", async () => {
  const { rehearsals, threadAt } = rehearsalsOf();
  const found = rehearsals.run(DATA);
  threadAt(0).emit("error", new Error("no such file"));
  const { ok, ...rest } = await found;
  assert.equal(ok, false);
  assert.notDeepEqual(rest, { problems: FOUND.ok ? [] : FOUND.problems });
});

test("a rehearsal ends with its client, and the next one begins at once", async () => {
  const { rehearsals, threadAt } = rehearsalsOf();
  const client = new AbortController();
  const left = rehearsals.run(DATA, client.signal);
  client.abort();
  await assert.rejects(left, /the client has left/);
  assert.equal(threadAt(0).isEnded, true);
  const gone = rehearsals.run(DATA, client.signal);
  await assert.rejects(gone, /the client has left/);
  assert.deepEqual([threadAt(1).isEnded, threadAt(1).asked], [true, 0]);
  const next = rehearsals.run(DATA);
  threadAt(2).emit("message", FOUND);
  assert.equal(await next, FOUND);
});
