import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../base/clock.ts";
import { Owner } from "../../base/owner.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import type { Store } from "../../store/store.ts";
import { createKeyFinder, createStoredKeys, type KeyFinder } from "./stored-keys.ts";

const finder = (store: Store, owner = Owner.standalone): KeyFinder =>
  createKeyFinder(ownedStore(store, owner), systemClock);

test("a revoked key is rejected at once by every policy of the process", async () => {
  const store = createMemoryStore(systemClock);
  const [admin, policy] = [createStoredKeys(store, systemClock), finder(store)];
  const { key } = await admin.make({ name: "alice", metadata: {} });
  const found = await policy.find(key);
  assert.equal(found?.name, "alice");
  assert.equal(await admin.revoke(found.id), true);
  assert.equal(await policy.find(key), undefined);
});

test("stores do not share their caches", async () => {
  const [one, other] = [createMemoryStore(systemClock), createMemoryStore(systemClock)];
  const { key } = await createStoredKeys(one, systemClock).make({ name: "alice", metadata: {} });
  assert.ok(await finder(one).find(key));
  assert.equal(await finder(other).find(key), undefined);
});

test("a key is accepted by its namespace, and without one by the standalone configuration and documents in files", async () => {
  const store = createMemoryStore(systemClock);
  const admin = createStoredKeys(store, systemClock);
  const names = [undefined, "a", "b", "a/b", "@a", "Ä"] as const;
  const made = await Promise.all(
    names.map(async (namespace) => ({ namespace, ...(await admin.make({ name: "k", namespace, metadata: {} })) })),
  );
  for (const [owner, own] of [undefined, "a", "b", "a/b", "@a", "Ä"].entries())
    for (const isInFile of [true, false]) {
      const document = { namespace: own ?? "", kind: "GatewayPolicy", name: "p" };
      const keys = finder(store, own === undefined ? Owner.standalone : Owner.ofDocument(document, isInFile));
      for (const { namespace, key, id } of made) {
        const isAccepted = namespace === own || (namespace === undefined && isInFile);
        const isFound = (await keys.find(key)) !== undefined;
        assert.equal(isFound, isAccepted, `${owner}: ${namespace} at ${own}, in a file: ${isInFile}`);
        assert.equal(keys.accepts(namespace), isAccepted, id);
      }
    }
  assert.deepEqual((await admin.list()).map(({ namespace }) => namespace).sort(), [...names].sort());
  for (const { id } of made) assert.equal(await admin.revoke(id), true);
  assert.deepEqual(await admin.list(), []);
});

test("the cache of keys is bounded, whatever unknown keys clients send", async () => {
  const store = createMemoryStore(systemClock);
  let reads = 0;
  const counted: Store = {
    ...store,
    get: (key) => {
      reads += 1;
      return store.get(key);
    },
  };
  const keys = finder(counted);
  await keys.find("gw-first");
  await keys.find("gw-first");
  assert.equal(reads, 1);
  for (let i = 0; i < 10_000; i++) await keys.find(`gw-${i}`);
  const before = reads;
  await keys.find("gw-first");
  assert.equal(reads, before + 1, "the first key is no longer in the cache");
});
