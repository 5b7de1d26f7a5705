import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Random } from "../../../test/support/random.ts";
import { type EvictIdle, ProcessLimiter, type ProcessSlot } from "./process-pool.ts";

function gate(
  limits: { maxChildren: number; maxConcurrentStarts: number; maxChildrenPerClient?: number },
  makeRoom: EvictIdle = () => false,
) {
  const clock = fakeClock();
  const slots: ProcessSlot[] = [];
  const refusals: string[] = [];
  const it = new ProcessLimiter({ maxChildrenPerClient: limits.maxChildren, ...limits }, clock, makeRoom);
  const enter = (client?: string): (() => void) =>
    it.enter(
      client,
      (slot) => slots.push(slot),
      (reason) => refusals.push(reason),
    );
  return { it, clock, slots, refusals, enter };
}

test("only so many start at a time, the others follow in order [R47]", () => {
  const { it, slots, enter } = gate({ maxChildren: 10, maxConcurrentStarts: 2 });
  for (let i = 0; i < 5; i++) enter();
  assert.equal(slots.length, 2);
  assert.equal(it.waiting, 3);
  slots[0]?.started();
  assert.equal(slots.length, 3);
  slots[1]?.released();
  assert.equal(slots.length, 4);
  assert.equal(it.running, 3);
});

test("a request that waits too long is rejected [R47]", async () => {
  const { clock, slots, refusals, enter } = gate({ maxChildren: 10, maxConcurrentStarts: 1 });
  enter();
  enter();
  await clock.advance(59_999);
  assert.deepEqual(refusals, []);
  await clock.advance(1);
  assert.deepEqual(refusals, ["too many child processes are starting"]);
  slots[0]?.started();
  assert.equal(slots.length, 1);
});

test("a burst of 100 is served in order; only a queue of more than 1,000 rejects [R47]", () => {
  const { slots, refusals, enter } = gate({ maxChildren: 5_000, maxConcurrentStarts: 4 });
  for (let i = 0; i < 100; i++) enter();
  for (let i = 0; i < 100; i++) slots[i]?.started();
  assert.equal(slots.length, 100);
  for (let i = 0; i < 1_006; i++) enter();
  assert.deepEqual(refusals, [
    "too many child processes wait to be started",
    "too many child processes wait to be started",
  ]);
});

test("at the limit of children, a new one is rejected at once if no session can be evicted", () => {
  const { refusals, enter } = gate({ maxChildren: 1, maxConcurrentStarts: 5 });
  enter();
  enter();
  assert.deepEqual(refusals, ["the limit of 1 child processes is reached"]);
});

test("at the limit of children an idle session makes room", () => {
  const made: ProcessSlot[] = [];
  const { slots, refusals, enter } = gate({ maxChildren: 1, maxConcurrentStarts: 5 }, () => {
    made.push(slots[0] as ProcessSlot);
    return true;
  });
  enter();
  enter();
  assert.equal(slots.length, 1);
  made[0]?.released();
  assert.equal(slots.length, 2);
  assert.deepEqual(refusals, []);
});

test("a request that leaves the queue is not started", () => {
  const { slots, enter } = gate({ maxChildren: 10, maxConcurrentStarts: 1 });
  enter();
  const leave = enter();
  leave();
  slots[0]?.released();
  assert.equal(slots.length, 1);
});

test("a slot that is given back twice counts once", () => {
  const { it, slots, enter } = gate({ maxChildren: 10, maxConcurrentStarts: 1 });
  enter();
  slots[0]?.released();
  slots[0]?.released();
  slots[0]?.started();
  assert.equal(it.running, 0);
  enter();
  assert.equal(it.running, 1);
});

test("a queued request is rejected at once when the last slot is taken, not after a minute [R47]", () => {
  const { it, slots, refusals, enter } = gate({ maxChildren: 2, maxConcurrentStarts: 1 });
  for (let i = 0; i < 4; i++) enter();
  assert.deepEqual(refusals, []);
  slots[0]?.started();
  assert.equal(slots.length, 2);
  assert.equal(it.waiting, 0);
  assert.deepEqual(refusals, Array(2).fill("the limit of 2 child processes is reached"));
});

test("a queued request gets the slot of an idle session when the last slot is taken", () => {
  let idle = 1;
  const { it, slots, refusals, enter } = gate({ maxChildren: 2, maxConcurrentStarts: 1 }, () => idle-- > 0);
  for (let i = 0; i < 4; i++) enter();
  slots[0]?.started();
  assert.deepEqual(refusals, ["the limit of 2 child processes is reached"]);
  slots[1]?.started();
  assert.equal(it.waiting, 1);
  assert.equal(refusals.length, 1, "the one that was promised a place keeps waiting for it");
  slots[0]?.released();
  assert.equal(slots.length, 3);
  assert.equal(it.running, 2);
});

test("a rejection during which other requests leave or enter the queue affects only itself", () => {
  const clock = fakeClock();
  const told: string[] = [];
  const slots: ProcessSlot[] = [];
  const it = new ProcessLimiter(
    { maxChildren: 1, maxChildrenPerClient: 1, maxConcurrentStarts: 1 },
    clock,
    () => false,
  );
  const enter = (name: string, refused: () => void = () => undefined): (() => void) =>
    it.enter(
      undefined,
      (slot) => {
        told.push(`${name} starts`);
        slots.push(slot);
      },
      () => {
        told.push(`${name} is refused`);
        refused();
      },
    );
  it.limits = { maxChildren: 2, maxChildrenPerClient: 2, maxConcurrentStarts: 1 };
  enter("one");
  enter("two");
  let leave: () => void = () => undefined;
  enter("three", () => {
    leave();
    enter("five");
  });
  leave = enter("four");
  slots[0]?.started();
  assert.deepEqual(told, ["one starts", "two starts", "three is refused", "five is refused"]);
  assert.equal(it.waiting, 0);
  for (const slot of slots) slot.released();
  assert.equal(it.running, 0);
});

test("one client cannot take all slots: only its own requests are rejected at its limit [A30]", () => {
  const { it, slots, refusals, enter } = gate({ maxChildren: 4, maxChildrenPerClient: 2, maxConcurrentStarts: 9 });
  for (let i = 0; i < 5; i++) enter("greedy");
  assert.deepEqual(refusals, Array(3).fill("the limit of 2 child processes per client is reached"));
  enter("honest");
  enter("honest");
  assert.equal(it.running, 4);
  slots[0]?.released();
  enter("greedy");
  assert.equal(slots.length, 5);
});

test("children that wait to be started, and spares that were taken, count as their client's", () => {
  const { it, slots, refusals, enter } = gate({ maxChildren: 9, maxChildrenPerClient: 2, maxConcurrentStarts: 1 });
  const spare = it.spare();
  spare?.started();
  spare?.assignTo("greedy");
  enter("greedy");
  const leave = enter("other");
  enter("greedy");
  assert.equal(refusals.length, 1);
  leave();
  spare?.released();
  enter("greedy");
  assert.equal(refusals.length, 1);
  for (const slot of slots) slot.released();
  for (const slot of slots) slot.released();
  assert.equal(it.running, 0);
  assert.ok(it.hasShare("greedy") && it.hasShare("other"));
});

test("a client over its share makes room by its own sessions only, and waits until a process exits", () => {
  const asked: [string | undefined, boolean][] = [];
  const { slots, enter } = gate({ maxChildren: 4, maxChildrenPerClient: 1, maxConcurrentStarts: 9 }, (...args) => {
    asked.push(args);
    slots[0]?.ending();
    return true;
  });
  enter("one");
  enter("one");
  assert.deepEqual(asked, [["one", true]]);
  assert.equal(slots.length, 1);
  slots[0]?.released();
  assert.equal(slots.length, 2);
});

test("at a limit, a request waits for a process that is ending, and only one request for each", () => {
  for (const maxChildrenPerClient of [2, 9]) {
    const { it, slots, refusals, enter } = gate({ maxChildren: 2, maxChildrenPerClient, maxConcurrentStarts: 9 });
    enter("one");
    enter("one");
    slots[0]?.ending();
    slots[0]?.ending();
    enter("one");
    assert.deepEqual(refusals, []);
    enter("one");
    assert.equal(refusals.length, 1);
    slots[0]?.released();
    assert.equal(slots.length, 3);
    assert.equal(it.running, 2);
  }
});

test("a request that waits for its client's processes does not delay other clients", () => {
  const { slots, enter } = gate({ maxChildren: 4, maxChildrenPerClient: 1, maxConcurrentStarts: 1 });
  enter("one");
  slots[0]?.ending();
  enter("one");
  enter("two");
  slots[0]?.started();
  assert.equal(slots.length, 2);
  slots[1]?.started();
  slots[0]?.released();
  assert.equal(slots.length, 3);
});

test("limits hold, and nobody waits without a reason, in every order of events", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const numbers = new Random(seed);
    const random = (below: number): number => numbers.int(below);
    const limits = {
      maxChildren: 1 + random(6),
      maxChildrenPerClient: 1 + random(4),
      maxConcurrentStarts: 1 + random(3),
    };
    const live: { client: string; slot: ProcessSlot; isStarting: boolean; isEnding: boolean }[] = [];
    const queue: string[] = [];
    const it = new ProcessLimiter(limits, fakeClock(), (client, isOwn) => {
      const idle = live.find((one) => !one.isEnding && (!isOwn || one.client === client));
      if (idle === undefined || random(2) === 0) return false;
      idle.isEnding = true;
      idle.slot.ending();
      return true;
    });
    const runningOf = (client: string): number => live.filter((one) => one.client === client).length;
    const release = (one: (typeof live)[number]): void => {
      live.splice(live.indexOf(one), 1);
      one.slot.released();
    };
    for (let step = 0; step < 300; step++) {
      const one = live[random(live.length + 1)];
      const event = random(4);
      if (event === 0 || one === undefined) {
        const client = "abc"[random(3)] as string;
        let isQueued = false;
        it.enter(
          client,
          (slot) => {
            if (isQueued) queue.splice(queue.indexOf(client), 1);
            live.push({ client, slot, isStarting: true, isEnding: false });
            isQueued = false;
          },
          () => {
            if (isQueued) queue.splice(queue.indexOf(client), 1);
          },
        );
        isQueued = it.waiting > queue.length;
        if (isQueued) queue.push(client);
      } else if (event === 1) {
        one.isStarting = false;
        one.slot.started();
      } else if (event === 2) {
        one.isEnding = true;
        one.slot.ending();
      } else release(one);
      const told = `seed ${seed}, step ${step}`;
      assert.equal(it.running, live.length, told);
      assert.equal(it.waiting, queue.length, told);
      assert.ok(live.length <= limits.maxChildren, told);
      for (const client of "abc") assert.ok(runningOf(client) <= limits.maxChildrenPerClient, told);
      const isFree =
        live.length < limits.maxChildren &&
        live.filter(({ isStarting }) => isStarting).length < limits.maxConcurrentStarts;
      if (isFree)
        for (const client of queue) assert.equal(runningOf(client), limits.maxChildrenPerClient, `${told}: ${client}`);
    }
    while (live[0] !== undefined) release(live[0]);
    assert.deepEqual([it.running, it.waiting], [0, 0]);
    for (const client of "abc") assert.ok(it.hasShare(client));
  }
});
