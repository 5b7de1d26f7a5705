/** Additions while the store is away: what did not arrive is made again, what may have arrived is not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { Ledger } from "./ledger.ts";

const ACCOUNT = { key: "a", expiresAtMs: Date.UTC(2027, 0, 1) };

function setUp() {
  const clock = fakeClock();
  const memory = createMemoryStore(clock);
  let failure: Error | undefined;
  const store: Store = { ...memory, add: (...args) => (failure ? Promise.reject(failure) : memory.add(...args)) };
  const ledger = new Ledger(store, clock, silentLogger);
  const total = async (): Promise<number> => (await memory.add("a", 0)).total;
  return {
    clock,
    ledger,
    total,
    fail(next: Error | undefined) {
      failure = next;
    },
  };
}

test("what the store could not take waits, in one sum, until it can", async () => {
  const { clock, ledger, total, fail } = setUp();
  fail(new StoreUnavailable("gone"));
  assert.equal(await ledger.add(ACCOUNT, 5), undefined);
  await ledger.add(ACCOUNT, 7);
  await ledger.add(ACCOUNT, -2);
  assert.equal(ledger.waiting, 1);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 1);
  fail(undefined);
  await clock.advance(1_000);
  assert.equal(ledger.waiting, 0);
  assert.equal(await total(), 10);
  assert.equal(await ledger.add(ACCOUNT, 1), 11);
});

test("what may have been counted is not counted again", async () => {
  const { clock, ledger, total, fail } = setUp();
  fail(new StoreUnavailable("timed out", { isUncertain: true }));
  await ledger.add(ACCOUNT, 5);
  fail(undefined);
  await clock.advance(5_000);
  assert.equal(await total(), 0);
});

test("at the end, what waits is written", async () => {
  const { ledger, total, fail } = setUp();
  fail(new StoreUnavailable("gone"));
  await ledger.add(ACCOUNT, 5);
  fail(undefined);
  await ledger.close();
  assert.equal(await total(), 5);
});
