import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Clock } from "../../base/clock.ts";
import { Owner } from "../../base/owner.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";
import { fitsInside, SessionRecords } from "./session-records.ts";

const MAX_PARAMS_BYTES = 256 * 1024;

test("parameters fit into a session id up to a number of bytes, which is the limit when the id is read", () => {
  assert.equal(fitsInside("x".repeat(MAX_PARAMS_BYTES)), true);
  assert.equal(fitsInside("x".repeat(MAX_PARAMS_BYTES + 1)), false);
  assert.equal(fitsInside("é".repeat(MAX_PARAMS_BYTES / 2)), true);
  assert.equal(fitsInside("é".repeat(MAX_PARAMS_BYTES / 2 + 1)), false);
});

function recordsIn(store: Store, clock: Clock): SessionRecords {
  const key = { sign: () => "s".repeat(22), isSignature: () => true, isGiven: false };
  const owned = ownedStore(store, Owner.standalone);
  return new SessionRecords({
    backend: "b",
    clock,
    logger: silentLogger,
    store: owned,
    key,
    idleTtlMs: () => 60_000,
  });
}

test("a session that began while Redis was unavailable is recorded later, and ends when its record is deleted", async () => {
  const clock = fakeClock();
  const memory = createMemoryStore(clock);
  let isAvailable = false;
  const store: Store = {
    ...memory,
    kind: "redis",
    set: (key, value, options) =>
      isAvailable ? memory.set(key, value, options) : Promise.reject(new StoreUnavailable("connect ECONNREFUSED")),
  };
  const records = recordsIn(store, clock);
  const { id, record } = records.issue("0".repeat(32), "{}", undefined);
  records.begin(record);
  await new Promise(setImmediate);
  isAvailable = true;
  assert.equal(await records.touch(record, 0, false), true);
  assert.deepEqual(await records.find(id, undefined), { record, params: "{}" });
  assert.equal(await records.touch(record, 0, false), true);
  records.end(record);
  await new Promise(setImmediate);
  assert.equal(await records.touch(record, 0, false), false);
});

test("without the store, a session is resumed unless it ended in this process", async () => {
  const clock = fakeClock();
  const memory = createMemoryStore(clock);
  let isAvailable = true;
  const store: Store = {
    ...memory,
    kind: "folder",
    get: (name) => (isAvailable ? memory.get(name) : Promise.reject(new StoreUnavailable("it is closed"))),
  };
  const records = recordsIn(store, clock);
  const [one, other] = [records.issue("0".repeat(32), "{}", undefined), records.issue("1".repeat(32), "{}", undefined)];
  for (const { record } of [one, other]) records.begin(record);
  records.end(one.record);
  await new Promise(setImmediate);
  for (const available of [true, false]) {
    isAvailable = available;
    assert.equal(await records.find(one.id, undefined), undefined);
    assert.deepEqual(await records.find(other.id, undefined), { record: other.record, params: "{}" });
  }
});
