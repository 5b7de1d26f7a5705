import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Owner } from "../../base/owner.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { noStore, type Store, StoreUnavailable } from "../../store/store.ts";
import { TaskRecords } from "./task-records.ts";

const clock = fakeClock();

function recordsIn(store: Store, backend = "b", sign = "secret", at = clock): TaskRecords {
  const key = { sign: () => sign, isSignature: () => false, isGiven: false };
  const env = { backend, clock: at, logger: silentLogger, store: ownedStore(store, Owner.standalone), key };
  return new TaskRecords(env);
}

test("a task is found by its backend, target and owner alone, also by another replica", async () => {
  const store = createMemoryStore(clock);
  await recordsIn(store)
    .client("alice")
    .add("t", "1", { tool: "read", arguments: { a: 1 } });
  for (const backend of ["b", "c"])
    for (const owner of ["alice", "carol", "", 'alice"', "b"])
      for (const target of ["t", "u", "alice"])
        for (const id of ["1", "2", "", "01"])
          for (const secret of ["secret", "another"]) {
            const found = (await recordsIn(store, backend, secret).client(owner).of(target)).origin(id);
            const isOwn = [backend, owner, target, id, secret].join() === "b,alice,t,1,secret";
            assert.equal(found?.tool, isOwn ? "read" : undefined, [backend, owner, target, id, secret].join());
          }
});

test("the store shows neither ids nor arguments", async () => {
  const store = createMemoryStore(clock);
  await recordsIn(store)
    .client("alice")
    .add("t", "the-id", { tool: "the-tool", arguments: { a: "the-argument" } });
  assert.doesNotMatch(JSON.stringify(store.content?.()), /the-|alice/);
});

test("the oldest tasks of a client and too long arguments are dropped", async () => {
  const store = createMemoryStore(clock);
  const tasks = recordsIn(store).client("alice");
  for (let i = 0; i < 510; i++) await tasks.add("t", String(i), { tool: "read" });
  const own = await tasks.of("t");
  assert.equal(own.origin("9"), undefined);
  assert.equal(own.origin("10")?.tool, "read");
  for (let i = 0; i < 50; i++) await tasks.add("u", String(i), { tool: "read", arguments: { a: "x".repeat(4_000) } });
  assert.ok(store.bytes !== undefined && store.bytes < 400_000, String(store.bytes));
  await tasks.add("u", "last", { tool: "read", arguments: { a: "x".repeat(5_000) } });
  assert.deepEqual((await tasks.of("u")).origin("last")?.arguments, undefined);
});

test("calls at the same time are all recorded, and a store that is unavailable is an error", async () => {
  const tasks = recordsIn(createMemoryStore(clock)).client("alice");
  await Promise.all(Array.from({ length: 10 }, (_, i) => tasks.add("t", String(i), { tool: "read" })));
  const own = await tasks.of("t");
  for (let i = 0; i < 10; i++) assert.ok(own.origin(String(i)), String(i));
  const away = recordsIn(noStore).client("alice");
  await assert.rejects(away.add("t", "1", { tool: "read" }), StoreUnavailable);
  await assert.rejects(away.of("t"), StoreUnavailable);
});

test("a task is unknown a day after its last use", async () => {
  const at = fakeClock();
  const tasks = recordsIn(createMemoryStore(at), "b", "secret", at).client("alice");
  await tasks.add("t", "1", { tool: "read" });
  for (let hours = 0; hours < 40; hours += 20) {
    await at.advance(20 * 3_600_000);
    assert.ok((await tasks.of("t")).origin("1"), String(hours));
  }
  await at.advance(25 * 3_600_000);
  assert.equal((await tasks.of("t")).origin("1"), undefined);
});
