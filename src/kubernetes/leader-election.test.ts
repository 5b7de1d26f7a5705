import assert from "node:assert/strict";
import { test } from "node:test";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type FakeApi, fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import { silentLogger } from "../observe/log/logger.ts";
import { electLeader, type Leader } from "./leader-election.ts";

const LEASES = "/apis/coordination.k8s.io/v1/leases";

function candidate(api: FakeApi, clock: FakeClock, identity: string): Leader {
  return electLeader({
    client: api,
    clock,
    logger: silentLogger,
    namespace: "system",
    name: "controller",
    identity,
    random: () => 0.5,
    changed: () => undefined,
  });
}

test("one of two leads, and the other takes over when it gives up", async () => {
  const api = fakeApi();
  const clock = fakeClock();
  const one = candidate(api, clock, "one");
  await clock.advance(1);
  const two = candidate(api, clock, "two");
  await clock.advance(30_000);
  assert.deepEqual([one.isLeader(), two.isLeader()], [true, false]);
  await one.stop();
  await clock.advance(4_000);
  assert.equal(two.isLeader(), true);
  const { spec } = api.get(LEASES, "system", "controller") as { spec?: { leaseTransitions?: number } };
  assert.equal(spec?.leaseTransitions, 1);
});

test("a leader that cannot renew stops leading before another may begin", async () => {
  const api = fakeApi();
  const clock = fakeClock();
  const one = candidate(api, clock, "one");
  await clock.advance(1);
  assert.equal(one.isLeader(), true);
  api.failWith(new Error("away"));
  await clock.advance(9_000);
  assert.equal(one.isLeader(), true);
  await clock.advance(5_000);
  assert.equal(one.isLeader(), false);
  api.failWith(undefined);
  await clock.advance(4_000);
  assert.equal(one.isLeader(), true);
});

test("a holder that died is waited for, by our own clock and not by the time in the lease", async () => {
  const api = fakeApi();
  const clock = fakeClock();
  api.put(LEASES, {
    metadata: { name: "controller", namespace: "system" },
    spec: { holderIdentity: "dead", renewTime: "1970-01-01T00:00:00.000000Z", leaseDurationSeconds: 15 },
  });
  const one = candidate(api, clock, "one");
  await clock.advance(14_000);
  assert.equal(one.isLeader(), false);
  await clock.advance(5_000);
  assert.equal(one.isLeader(), true);
});
