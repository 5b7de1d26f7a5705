import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { createStoredKeys } from "./stored-keys.ts";

test("a revoked key is rejected at once by every policy of the process", async () => {
  const store = createMemoryStore(systemClock);
  const [admin, policy] = [createStoredKeys(store, systemClock), createStoredKeys(store, systemClock)];
  const { key } = await admin.make({ name: "alice", metadata: {} });
  const found = await policy.find(key);
  assert.equal(found?.name, "alice");
  assert.equal(await admin.revoke(found.id), true);
  assert.equal(await policy.find(key), undefined);
});

test("stores do not share their caches", async () => {
  const [one, other] = [createMemoryStore(systemClock), createMemoryStore(systemClock)];
  const { key } = await createStoredKeys(one, systemClock).make({ name: "alice", metadata: {} });
  assert.ok(await createStoredKeys(one, systemClock).find(key));
  assert.equal(await createStoredKeys(other, systemClock).find(key), undefined);
});
