import assert from "node:assert/strict";
import { test } from "node:test";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type FakeApi, fakeApi } from "../../test/support/kubernetes/fake-api.ts";
import type { Clock } from "../base/clock.ts";
import { silentLogger } from "../record/log/logger.ts";
import type { ApiClient } from "./api-client.ts";
import { electLeader, type Leader } from "./leader-election.ts";

const LEASES = "/apis/coordination.k8s.io/v1/leases";

interface Candidate extends Leader {
  readonly reconnects: () => number;
}

function candidate(client: ApiClient, clock: Clock, identity: string, termMs?: number): Candidate {
  let reconnects = 0;
  const leader = electLeader({
    client,
    clock,
    logger: silentLogger,
    namespace: "system",
    name: "controller",
    identity,
    address: `${identity}:9443`,
    ...(termMs === undefined ? {} : { termMs }),
    random: () => 0.5,
    changed: () => undefined,
    reconnected: () => {
      reconnects += 1;
    },
  });
  return { ...leader, reconnects: () => reconnects };
}

test("one of two leads, and the other takes over when it gives up", async () => {
  const api = fakeApi();
  const clock = fakeClock();
  const one = candidate(api, clock, "one");
  await clock.advance(1);
  const two = candidate(api, clock, "two");
  await clock.advance(30_000);
  assert.deepEqual([one.isLeader(), two.isLeader()], [true, false]);
  assert.deepEqual([one.leaderAddress(), two.leaderAddress()], [undefined, "one:9443"]);
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
  await clock.advance(2_000);
  assert.equal(one.isLeader(), false);
  assert.equal(one.isConnected(), true);
  await clock.advance(5_000);
  assert.equal(one.isConnected(), false);
  api.failWith(undefined);
  await clock.advance(4_000);
  assert.equal(one.isLeader(), true);
  assert.equal(one.isConnected(), true);
  assert.equal(one.reconnects(), 1);
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

/** The conditions of one candidate: its network, and whether its process runs. */
interface Fate {
  network: "good" | "lost" | "hangs before" | "hangs after";
  isFrozen: boolean;
}

/** A client over a network that fails: "hangs before" the server, or "after" it, when only the response is lost. */
function faultyClient(api: FakeApi, clock: FakeClock, fate: Fate): ApiClient {
  return {
    ...api,
    async request(request) {
      const { network } = fate;
      if (network === "good") return api.request(request);
      if (network === "lost") throw new Error("connection refused");
      if (network === "hangs after") await api.request(request).catch(() => undefined);
      return new Promise((_, reject) => {
        clock.after(request.timeoutMs ?? 30_000, () => reject(new Error("timeout")));
      });
    },
  };
}

/** Timers of a stopped process run when it continues. */
function processClock(clock: FakeClock, fate: Fate, thawed: (() => void)[]): Clock {
  return {
    ...clock,
    after(ms, callback) {
      let isCanceled = false;
      const run = (): void => {
        if (!isCanceled) callback();
      };
      const timer = clock.after(ms, () => (fate.isFrozen ? void thawed.push(run) : run()));
      return {
        cancel() {
          isCanceled = true;
          timer.cancel();
        },
      };
    },
  };
}

const NETWORKS = ["good", "good", "lost", "hangs before", "hangs after"] as const;

/** A generator of numbers below 1 that is the same in every run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Runs three candidates through a random schedule; the number of moments with two leaders, and with one. */
async function leadersOf(seed: number, termMs?: number): Promise<{ readonly several: number; readonly one: number }> {
  const random = numbers(seed);
  const api = fakeApi();
  const clock = fakeClock();
  const members = ["one", "two", "three"].map((identity) => {
    const fate: Fate = { network: "good", isFrozen: false };
    const thawed: (() => void)[] = [];
    const own = processClock(clock, fate, thawed);
    return { fate, thawed, leader: candidate(faultyClient(api, clock, fate), own, identity, termMs) };
  });
  let several = 0;
  let one = 0;
  for (let step = 0; step < 40; step += 1) {
    for (const { fate, thawed } of members) {
      if (random() < 0.5) continue;
      fate.network = NETWORKS[Math.floor(random() * NETWORKS.length)] ?? "good";
      fate.isFrozen = random() < 0.25;
      if (!fate.isFrozen) for (const run of thawed.splice(0)) run();
    }
    const untilMs = clock.monotonicMs() + 1_000 + Math.floor(random() * 12_000);
    while (clock.monotonicMs() < untilMs) {
      await clock.advance(500);
      const leading = members.filter(({ leader }) => leader.isLeader()).length;
      if (leading > 1) several += 1;
      if (leading === 1) one += 1;
    }
  }
  return { several, one };
}

test("replicas that hang, freeze, lose and regain contact never lead at the same time", async () => {
  let led = 0;
  for (let seed = 1; seed <= 25; seed += 1) {
    const { several, one } = await leadersOf(seed);
    assert.equal(several, 0, `two leaders with seed ${seed}`);
    led += one;
  }
  assert.ok(led > 1_000, `only ${led} moments with a leader`);
});

test("the schedules above find two leaders if the term is longer than the lease", async () => {
  let several = 0;
  for (let seed = 1; seed <= 25 && several === 0; seed += 1) several = (await leadersOf(seed, 30_000)).several;
  assert.ok(several > 0);
});
