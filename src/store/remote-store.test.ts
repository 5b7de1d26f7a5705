import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../base/clock.ts";
import { createMemoryStore } from "./memory-store.ts";
import { createRemoteStore, type StoreRequest, serveStoreRequest } from "./remote-store.ts";
import { StoreUnavailable } from "./store.ts";

function open() {
  const owner = createMemoryStore(systemClock);
  const sent: StoreRequest[] = [];
  const remote = createRemoteStore("memory", systemClock, (request) => void sent.push(request));
  return { owner, sent, remote };
}

test("operations that the owner did not run are run once by the store that replaces it", async () => {
  const { owner, sent, remote } = open();
  const pending = [remote.add("budgets/a", 1), remote.add("budgets/a", 2)];
  const [first] = sent;
  assert.ok(first);
  remote.answered(await serveStoreRequest(owner, first));
  remote.hold(false);
  const held = remote.add("budgets/a", 4);
  assert.equal(sent.length, 2);
  remote.retake(owner);
  const later = remote.add("budgets/a", 8);
  assert.deepEqual(
    (await Promise.all([...pending, held, later])).map(({ total }) => total),
    [1, 3, 7, 15],
  );
  assert.equal(sent.length, 2);
});

test("operations that the owner may have run are rejected as uncertain, and later ones are kept", async () => {
  const { owner, remote } = open();
  const pending = remote.add("budgets/a", 1);
  remote.hold(true);
  await assert.rejects(pending, (error: Error) => error instanceof StoreUnavailable && error.isUncertain);
  const held = remote.add("budgets/a", 2);
  remote.retake(owner);
  assert.deepEqual(await held, { isAdded: true, total: 2 });
});

test("operations fail at once if no store replaces the owner", async () => {
  const { remote } = open();
  remote.hold(false);
  const held = remote.get("a");
  remote.gone("it could not be reopened");
  await assert.rejects(held, /it could not be reopened/);
  await assert.rejects(remote.get("a"), /it could not be reopened/);
});
