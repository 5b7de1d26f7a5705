/** Additions while the store is away: what did not arrive is made again, what may have arrived is not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Owner, ownedKey } from "../../base/owner.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { accountFor, accountsOf, type Budget } from "./budget.ts";
import { Ledger } from "./ledger.ts";

function setUp() {
  const clock = fakeClock();
  const memory = createMemoryStore(clock);
  let failure: Error | undefined;
  const store: Store = { ...memory, add: (...args) => (failure ? Promise.reject(failure) : memory.add(...args)) };
  const ledger = new Ledger(clock, silentLogger);
  const account = {
    store,
    former: undefined,
    key: "a",
    id: ownedKey(Owner.standalone, "a"),
    expiresAtMs: Date.UTC(2027, 0, 1),
  };
  const total = async (): Promise<number> => (await memory.add("a", 0)).total;
  return {
    account,
    clock,
    ledger,
    total,
    fail(next: Error | undefined) {
      failure = next;
    },
  };
}

test("what the store could not take waits, in one sum, until it can", async () => {
  const { account, clock, ledger, total, fail } = setUp();
  fail(new StoreUnavailable("gone"));
  assert.equal(await ledger.add(account, 5), undefined);
  await ledger.add(account, 7);
  await ledger.add(account, -2);
  assert.equal(ledger.waiting, 1);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 1);
  fail(undefined);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 0);
  assert.equal(await total(), 10);
  assert.equal(await ledger.add(account, 1), 11);
});

test("what may have been counted is not counted again", async () => {
  const { account, clock, ledger, total, fail } = setUp();
  fail(new StoreUnavailable("timed out", { isUncertain: true }));
  await ledger.add(account, 5);
  fail(undefined);
  await clock.advance(5_000);
  assert.equal(await total(), 0);
});

test("at the end, what waits is written", async () => {
  const { account, ledger, total, fail } = setUp();
  fail(new StoreUnavailable("gone"));
  await ledger.add(account, 5);
  fail(undefined);
  await ledger.close();
  assert.equal(await total(), 5);
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
        await ledgers[replica].add(account, used - amount);
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
