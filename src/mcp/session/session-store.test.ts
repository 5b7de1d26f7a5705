import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createIdSource } from "../../base/ids.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { createTasks } from "../../base/tasks.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { ownsProcess, type Upstream, UpstreamDrain, type UpstreamHolder } from "../server-side/upstream.ts";
import type { SessionRecords } from "./session-records.ts";
import { SessionStore } from "./session-store.ts";

function storeWith(
  tenants: readonly { readonly name: string; readonly idleMs: number; readonly upstreams: object[] }[],
) {
  const clock = fakeClock();
  const task = createTasks(clock).start("mcp backend", "test");
  const store = new SessionStore(
    { maxSessions: 10, maxSessionsPerClient: 10, sessionIdleTtlMs: 600_000, parkAfterMs: 0 },
    {
      clock,
      logger: silentLogger,
      ids: createIdSource(),
      task,
      drain: new UpstreamDrain(clock, () => undefined),
      // No session is made here, only tenants that somebody else made.
      records: {} as SessionRecords,
      memory: createMemoryBudget(clock),
    },
  );
  const ended: string[] = [];
  for (const { name, idleMs, upstreams } of tenants) {
    const holder: UpstreamHolder = {
      lastUsedMs: clock.monotonicMs() - idleMs,
      isIdle: idleMs > 0,
      upstreams: upstreams.map((one) => ({ close: () => Promise.resolve(), ...one }) as unknown as Upstream),
      sweep: () => undefined,
      end: (reason) => {
        ended.push(name);
        store.sharedEnded(holder, reason);
      },
      detail: () => ({}),
    };
    store.addShared(holder, name);
  }
  return { store, ended };
}

const CHILD = { ownsProcess: true };
const PARKED = { ownsProcess: false };
const REMOTE = {};

test("room for a child is made by the oldest session that has one: the end of others would free nothing [R47]", () => {
  const { store, ended } = storeWith([
    { name: "parked", idleMs: 500_000, upstreams: [PARKED] },
    { name: "remote", idleMs: 400_000, upstreams: [REMOTE] },
    { name: "young", idleMs: 20_000, upstreams: [CHILD] },
    { name: "old", idleMs: 30_000, upstreams: [REMOTE, CHILD] },
    { name: "busy", idleMs: 0, upstreams: [CHILD] },
    { name: "fresh", idleMs: 9_000, upstreams: [CHILD] },
  ]);
  assert.ok(store.makeRoom(ownsProcess));
  assert.ok(store.makeRoom(ownsProcess));
  assert.ok(!store.makeRoom(ownsProcess), "what was used a moment ago, or is in use, stays");
  assert.deepEqual(ended, ["old", "young"]);
});

test("room for a session is made by the oldest of all", () => {
  const { store, ended } = storeWith([
    { name: "old", idleMs: 30_000, upstreams: [CHILD] },
    { name: "parked", idleMs: 500_000, upstreams: [PARKED] },
  ]);
  assert.ok(store.makeRoom());
  assert.deepEqual(ended, ["parked"]);
  assert.equal(store.size, 1);
});
