import assert from "node:assert/strict";
import { test } from "node:test";
import { Owner } from "../../base/owner.ts";
import { createSharedMemory, givenSharedMemory, ownedMemory, type SharedMemory } from "../../base/shared-memory.ts";
import { CanaryTrial } from "./canary.ts";

const isBad = ({ requests, failed }: { requests: number; failed: number }): boolean => requests >= 4 && failed > 1;
const times = (nowMs: number) => ({ nowMs, wallMs: 1000 + nowMs, windowMs: 60_000 });
const failed = { hasFailed: true, isSlow: false };
const owned = (memory: SharedMemory) => ownedMemory(memory, Owner.standalone);
const ok = { hasFailed: false, isSlow: true };

test("threads count together, and one of them makes the decision for all", () => {
  const memory = createSharedMemory(1);
  const main = new CanaryTrial("c", 0, owned(memory));
  const one = new CanaryTrial("c", 5, owned(givenSharedMemory(2, () => memory.all())));
  const other = new CanaryTrial("c", 6, owned(givenSharedMemory(3, () => memory.all())));
  assert.deepEqual([one.count(failed, times(10), isBad), other.count(failed, times(11), isBad)], [false, false]);
  assert.deepEqual([one.count(ok, times(12), isBad), other.count(ok, times(13), isBad)], [false, true]);
  for (const trial of [main, one, other]) {
    assert.ok(trial.isWithdrawn);
    assert.deepEqual(trial.withdrawal, { at: 1013, requests: 4, failed: 2, slow: 2 });
  }
  assert.equal(one.count(failed, times(14), isBad), false);
  assert.deepEqual([main.counts.requests, main.withdrawal?.requests], [5, 4]);
});

test("a new window forgets what was counted, and a withdrawal stays", () => {
  const trial = new CanaryTrial("c", 0);
  for (let i = 0; i < 3; i++) trial.count(failed, times(i), isBad);
  trial.count(failed, times(60_000), isBad);
  assert.deepEqual(trial.counts, { requests: 1, failed: 1, slow: 0 });
  assert.equal(trial.withdrawal, undefined);
  for (let i = 0; i < 3; i++) trial.count(failed, times(60_001), isBad);
  trial.count(ok, times(200_000), isBad);
  assert.deepEqual([trial.isWithdrawn, trial.counts.requests], [true, 1]);
});

test("a thread that died with the lock does not keep the others waiting", () => {
  const memory = createSharedMemory(1);
  const trial = new CanaryTrial("c", 0, owned(memory));
  const { buffer } = owned(memory).claim("c", 0);
  Atomics.store(new Int32Array(buffer), buffer.byteLength / 4 - 2, 7);
  memory.died(7);
  assert.equal(trial.count(failed, times(1), isBad), false);
  assert.equal(trial.counts.failed, 1);
});
