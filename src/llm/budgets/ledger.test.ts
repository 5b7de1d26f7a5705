/**
 * Reservations end with their process and never before, and spending is counted once, whatever happens to the store.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Owner, ownedKey } from "../../base/owner.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { ONLY_ENDED } from "../../store/holds.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { accountFor, accountsOf, type Budget } from "./budget.ts";
import { Ledger } from "./ledger.ts";

const ACCOUNT = {
  former: undefined,
  key: "a",
  id: ownedKey(Owner.standalone, "a"),
  expiresAtMs: Date.UTC(2027, 0, 1),
};

function setUp() {
  const clock = fakeClock(Date.UTC(2026, 10, 15));
  const memory = createMemoryStore(clock);
  let failure: "before" | "after" | undefined;
  const store: Store = {
    ...memory,
    async add(...args) {
      if (failure === "before") throw new StoreUnavailable("gone");
      const result = await memory.add(...args);
      if (failure === "after") throw new StoreUnavailable("timed out", { isUncertain: true });
      return result;
    },
  };
  const ledger = new Ledger(clock, silentLogger);
  return {
    account: { ...ACCOUNT, store },
    clock,
    ledger,
    memory,
    total: async (): Promise<number> => (await memory.add("a", 0, { hold: ONLY_ENDED })).total,
    /** Operations fail before or after the store applied them. */
    fail(next: "before" | "after" | undefined) {
      failure = next;
    },
  };
}

test("what the store could not take waits, in one sum, until it can", async () => {
  const { account, clock, ledger, total, fail } = setUp();
  fail("before");
  assert.equal(await ledger.settle(account, 0, 5), undefined);
  await ledger.settle(account, 0, 7);
  assert.equal(ledger.waiting, 1);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 1);
  fail(undefined);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 0);
  assert.equal(await total(), 12);
  assert.equal(await ledger.settle(account, 0, 1), 13);
});

test("after a lost reply, an operation is repeated and counts once", async () => {
  const { account, clock, ledger, total, fail } = setUp();
  fail("after");
  await ledger.settle(account, 0, 5);
  assert.equal(await total(), 5);
  fail("before");
  await ledger.settle(account, 0, 3);
  await clock.advance(3_000);
  fail(undefined);
  await clock.advance(2_000);
  assert.equal(await total(), 8);
  assert.equal(ledger.waiting, 0);
});

test("at the end, what waits is written", async () => {
  const { account, ledger, total, fail } = setUp();
  fail("before");
  await ledger.settle(account, 0, 5);
  fail(undefined);
  await ledger.close();
  assert.equal(await total(), 5);
});

test("the reservation of a stream of two hours never ends early", async () => {
  const { account, clock, ledger, total } = setUp();
  assert.equal((await ledger.reserve(account, 40, 100)).isAdded, true);
  for (let seconds = 0; seconds < 7_200; seconds += 7) {
    await clock.advance(7_000);
    assert.equal(await total(), 40);
  }
  await ledger.take(account, 5);
  assert.equal(await total(), 45);
  assert.equal(await ledger.settle(account, 45, 30), 30);
  await clock.advance(600_000);
  assert.equal(await total(), 30);
});

test("a reservation ends within 30 s after its process, and those of others stay", async () => {
  const { account, clock, ledger, memory, total } = setUp();
  const killed = new Ledger(fakeClock(Date.UTC(2026, 10, 15)), silentLogger);
  await ledger.reserve(account, 10, 100);
  await killed.reserve(account, 40, 100);
  await killed.settle(account, 15, 7);
  await clock.advance(20_000);
  assert.equal(await total(), 10 + 25 + 7);
  // A renewal that was on its way counts for as long, and replicas see the end only when they read the store again.
  await clock.advance(6_000);
  assert.equal(await total(), 10 + 7);
  assert.equal((await ledger.reserve(account, 83, 100)).isAdded, true, "the next call is admitted");
  const { entries } = await memory.list("holds/");
  assert.equal(entries.length, 1);
  await ledger.settle(account, 93, 0);
  await clock.advance(3_600_000);
  assert.deepEqual((await memory.list("")).entries, [{ key: "a", value: "7" }], "nothing remains but what was spent");
});

test("a reservation whose reply was lost ends, and one that ended during an outage comes back", async () => {
  const { account, clock, ledger, total, fail } = setUp();
  fail("after");
  await assert.rejects(ledger.reserve(account, 10, 100));
  fail(undefined);
  assert.equal(await total(), 10);
  await clock.advance(20_000);
  assert.equal(await total(), 0);
  await ledger.reserve(account, 10, 100);
  fail("before");
  await clock.advance(60_000);
  assert.equal(await total(), 0);
  fail(undefined);
  await clock.advance(10_000);
  assert.equal(await total(), 10);
});

test("whatever fails, the total is what was spent and what is held", async () => {
  const step = fc.record({
    what: fc.constantFrom("reserve", "take", "settle", "pass"),
    amount: fc.integer({ min: 1, max: 50 }),
    fail: fc.constantFrom(undefined, undefined, "before", "after"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const { account, clock, ledger, total, fail } = setUp();
      const calls: number[] = [];
      let spent = 0;
      for (const { what, amount, fail: how } of steps) {
        fail(how as "before" | undefined);
        if (what === "reserve") {
          const isAdded = await ledger.reserve(account, amount, 200).then(
            (result) => result.isAdded,
            () => false,
          );
          if (isAdded) calls.push(amount);
        } else if (what === "take" && calls.length > 0) {
          void (await ledger.take(account, amount));
          calls[0] = (calls[0] ?? 0) + amount;
        } else if (what === "settle" && calls.length > 0) {
          await ledger.settle(account, calls.shift() ?? 0, amount);
          spent += amount;
        } else if (what === "pass") await clock.advance(amount * 1_000);
      }
      fail(undefined);
      await clock.advance(30_000);
      assert.equal(
        await total(),
        calls.reduce((sum, held) => sum + held, spent),
      );
    }),
    { numRuns: 500 },
  );
});

const BUDGET: Budget = {
  name: "monthly",
  unit: "tokens",
  limit: 1_000,
  per: "month",
  isHard: true,
  reservesOutput: false,
  alertAt: [],
};
/** As a version without owners names the account. */
const FORMER_KEY = "budgets/monthly/tokens/month/2026-11/=alice";

test("documents in files count what earlier versions spend in the same period, whoever begins", async () => {
  type Step = {
    readonly by: "old" | "a" | "b";
    readonly replica: 0 | 1;
    readonly amount: number;
    readonly used: number;
  };
  const step = fc.record({
    by: fc.constantFrom<Step["by"]>("old", "a", "b"),
    replica: fc.constantFrom<Step["replica"]>(0, 1),
    amount: fc.integer({ min: 1, max: 300 }),
    used: fc.integer({ min: 0, max: 300 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const clock = fakeClock(Date.UTC(2026, 10, 15));
      const store = createMemoryStore(clock);
      const ledgers = [new Ledger(clock, silentLogger), new Ledger(clock, silentLogger)] as const;
      const spent = { old: 0, a: 0, b: 0 };
      for (const { by, replica, amount, used } of steps) {
        if (by === "old") {
          const { isAdded } = await store.add(FORMER_KEY, amount, { limit: BUDGET.limit });
          if (!isAdded) continue;
          await store.add(FORMER_KEY, used - amount);
          spent.old += used;
          continue;
        }
        const owner = Owner.ofDocument({ namespace: by, kind: "GatewayPolicy", name: "p" }, true);
        const accounts = accountsOf(ownedStore(store, owner));
        const account = accountFor(accounts, BUDGET, "alice", "alice", clock.now());
        const { isAdded, total } = await ledgers[replica].reserve(account, amount, BUDGET.limit);
        const known = spent.old + spent[by];
        assert.ok(total >= known + (isAdded ? amount : 0), `${total} of ${JSON.stringify(spent)}`);
        if (spent.old === 0) assert.equal(total, spent[by] + (isAdded ? amount : 0));
        if (!isAdded) continue;
        await ledgers[replica].settle(account, amount, used);
        spent[by] += used;
        const former = Number((await store.get(FORMER_KEY)) ?? 0);
        assert.ok(former === 0 || former >= spent.old + spent[by], "old replicas see less than was spent");
      }
    }),
    { numRuns: 300 },
  );
});

test("a cluster's documents and the standalone configuration do not read accounts of others", async () => {
  const clock = fakeClock(Date.UTC(2026, 10, 15));
  const store = createMemoryStore(clock);
  const ledger = new Ledger(clock, silentLogger);
  await store.add(FORMER_KEY, 900);
  const document = { namespace: "a", kind: "GatewayPolicy", name: "p" };
  for (const [owner, expected] of [
    [Owner.ofDocument(document), 1],
    [Owner.standalone, 901],
  ] as const) {
    const account = accountFor(accountsOf(ownedStore(store, owner)), BUDGET, "alice", "alice", clock.now());
    assert.equal((await ledger.reserve(account, 1, BUDGET.limit)).total, expected);
  }
});
