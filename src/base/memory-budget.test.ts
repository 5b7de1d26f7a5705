import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../test/support/fake-clock.ts";
import {
  BodyPool,
  type BodyReservation,
  createMemoryBudget,
  MemoryAccount,
  type MemoryBudget,
  MemoryPool,
  MessagePool,
  type MessageReservation,
  memoryLimits,
  type ServerMessages,
  type StreamAccount,
  StreamPool,
} from "./memory-budget.ts";

const MIB = 1024 * 1024;
const RUNS = { seed: 1, numRuns: 300 };

test("the pools of a container leave memory for the process itself, whatever its size", () => {
  for (const mib of [512, 600, 1024, 4096, 65_536])
    for (const heapShare of [0.25, 0.5, 0.9]) {
      const limits = memoryLimits(mib * MIB, mib * MIB * heapShare);
      const { bodyBytes, sessionBytes, streamBytes, openStreamBytes, messageBytes, storeBytes, cacheBytes } = limits;
      const sum = bodyBytes + sessionBytes + streamBytes + openStreamBytes + messageBytes + storeBytes;
      assert.ok(sum <= 0.6 * mib * MIB, `${mib} ${heapShare}`);
      assert.ok(
        sessionBytes + openStreamBytes + storeBytes + bodyBytes / 2 <= 0.8 * mib * MIB * heapShare,
        `${mib} ${heapShare}`,
      );
      assert.ok(cacheBytes <= storeBytes / 2 && cacheBytes <= 64 * MIB);
    }
});

test("threads divide the memory of the process, and none has too little for one body", () => {
  const [one, eight] = [memoryLimits(8192 * MIB, 4096 * MIB), memoryLimits(8192 * MIB, 4096 * MIB, 8)];
  assert.ok(eight.bodyBytes * 8 <= one.bodyBytes * 8 && eight.bodyBytes < one.bodyBytes);
  assert.ok(memoryLimits(64 * MIB, 32 * MIB).bodyBytes >= 64 * MIB);
});

test("after any charges and releases the sums are exact, and no client is beyond its share [R50]", () => {
  const step = fc.record({
    holder: fc.nat(5),
    action: fc.constantFrom("grow" as const, "grow" as const, "shrink" as const, "close" as const),
    bytes: fc.integer({ min: 1, max: 60 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const pool = new MemoryPool(100);
      const accounts = Array.from({ length: 6 }, (_, n) => new MemoryAccount(pool, `client ${n % 3}`));
      for (const { holder, action, bytes } of steps) {
        const account = accounts[holder] as MemoryAccount;
        const before = pool.bytesOf(account.client);
        if (action === "close") account.close();
        else if (action === "shrink") account.shrink(Math.min(bytes, account.bytes));
        else if (account.tryGrow(bytes))
          assert.ok(before === 0 || pool.bytesOf(account.client) <= pool.clientLimitBytes);
        assert.equal(
          pool.usedBytes,
          accounts.reduce((sum, one) => sum + one.bytes, 0),
        );
        assert.ok(pool.usedBytes <= pool.limitBytes);
      }
      for (const account of accounts) account.close();
      assert.deepEqual([pool.usedBytes, pool.clients], [0, 0]);
    }),
    RUNS,
  );
});

interface TestBody {
  readonly reservation: BodyReservation;
  readonly bytes: number;
  outcome: "waiting" | "granted" | "rejected";
}

function reserve(pool: BodyPool, client: string, bytes: number): TestBody {
  const body: TestBody = { reservation: pool.open(client), bytes, outcome: "waiting" };
  body.reservation.reserve(
    bytes,
    () => {
      body.outcome = "granted";
    },
    () => {
      body.outcome = "rejected";
    },
  );
  return body;
}

test("any sequence of bodies keeps the sum exact and within the limit, and every body ends granted or rejected [R50]", async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("open" as const), client: fc.nat(3), mib: fc.integer({ min: 1, max: 32 }) }),
    fc.record({ kind: fc.constantFrom("finish" as const, "release" as const), body: fc.nat(30) }),
    fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 12_000 }) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const clock = fakeClock();
      const pool = new BodyPool(160 * MIB, clock);
      const bodies: TestBody[] = [];
      for (const one of steps) {
        if (one.kind === "open") bodies.push(reserve(pool, `client ${one.client}`, one.mib * MIB));
        else if (one.kind === "wait") await clock.advance(one.ms);
        else {
          const body = bodies[one.body % Math.max(1, bodies.length)];
          if (one.kind === "release") body?.reservation.release();
          else if (body?.outcome === "granted") body.reservation.finish();
        }
        const chargedBytes = bodies.reduce((sum, { reservation }) => sum + reservation.chargedBytes, 0);
        assert.equal(pool.usedBytes, chargedBytes);
        assert.ok(chargedBytes <= pool.limitBytes);
      }
      await clock.advance(10_000);
      assert.equal(pool.waiting, 0);
      for (const { reservation } of bodies) reservation.release();
      assert.equal(pool.usedBytes, 0);
    }),
    { ...RUNS, numRuns: 150 },
  );
});

test("a client that holds nothing can always send one body of the largest size, whatever other clients hold open [R51]", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ client: fc.nat(2), mib: fc.integer({ min: 1, max: 32 }) }), { maxLength: 30 }),
      async (held) => {
        const clock = fakeClock();
        const pool = new BodyPool(128 * MIB, clock);
        for (const { client, mib } of held) reserve(pool, `hostile ${client}`, mib * MIB);
        const small = reserve(pool, "honest", 100 * 1024);
        const hasLarger = held.length === 0 || small.outcome === "granted";
        assert.ok(hasLarger, "a small body takes the room of a larger client's");
        small.reservation.finish();
        small.reservation.release();
        for (const name of ["hostile 0", "hostile 1", "hostile 2"])
          assert.ok(pool.bytesOf(name) <= 64 * MIB, "no client holds more than one largest body or its share");
      },
    ),
    { ...RUNS, numRuns: 150 },
  );
  const clock = fakeClock();
  const pool = new BodyPool(64 * MIB, clock);
  assert.equal(reserve(pool, "alone", 32 * MIB).outcome, "granted", "also where the pool is smaller than the body");
});

test("the newest unfinished body of the client that holds the most is rejected for others; finished bodies are kept [R51]", () => {
  const pool = new BodyPool(160 * MIB, fakeClock());
  const finished = reserve(pool, "large", 20 * MIB);
  finished.reservation.finish();
  const older = reserve(pool, "large", 6 * MIB);
  const newer = reserve(pool, "large", 6 * MIB);
  const other = reserve(pool, "other", 25 * MIB);
  assert.deepEqual(
    [finished, older, newer, other].map(({ outcome }) => outcome),
    Array(4).fill("granted"),
  );
  const small = reserve(pool, "small", 6 * MIB);
  assert.equal(small.outcome, "granted");
  assert.deepEqual(
    [finished, older, newer, other].map(({ outcome }) => outcome),
    ["granted", "granted", "rejected", "granted"],
  );
});

test("memory freed by a large client's body is not used by another body of that client", () => {
  const pool = new BodyPool(64 * MIB, fakeClock());
  const large = Array.from({ length: 3 }, () => reserve(pool, "large", 30 * MIB));
  const small = reserve(pool, "small", MIB);
  assert.deepEqual(
    [...large, small].map(({ outcome }) => outcome),
    ["rejected", "waiting", "waiting", "granted"],
  );
  small.reservation.release();
  assert.equal(large[1]?.outcome, "granted");
});

test("a body waits for its own client's share without blocking others, and is rejected after 10 s", async () => {
  const clock = fakeClock();
  const pool = new BodyPool(400 * MIB, clock);
  const all = Array.from({ length: 4 }, () => reserve(pool, "one", 24 * MIB));
  assert.deepEqual(
    all.map(({ outcome }) => outcome),
    ["granted", "granted", "granted", "waiting"],
  );
  assert.equal(reserve(pool, "two", 24 * MIB).outcome, "granted");
  all[0]?.reservation.release();
  assert.equal(all[3]?.outcome, "granted");
  const late = reserve(pool, "one", 24 * MIB);
  await clock.advance(9_999);
  assert.equal(late.outcome, "waiting");
  await clock.advance(1);
  assert.equal(late.outcome, "rejected");
  assert.equal(pool.waiting, 0);
});

test("a body of unknown length is reserved step by step, and its copies are released when the response begins", () => {
  const pool = new BodyPool(200 * MIB, fakeClock());
  const { reservation } = reserve(pool, "one", MIB);
  let isGranted = false;
  reservation.reserve(4 * MIB, () => (isGranted = true), assert.fail);
  assert.ok(isGranted);
  assert.equal(pool.bytesOf("one"), 8 * MIB);
  reservation.dropCopies();
  assert.equal(pool.bytesOf("one"), 8 * MIB, "not while it arrives");
  reservation.finish();
  reservation.dropCopies();
  assert.equal(pool.bytesOf("one"), 4 * MIB);
  reservation.release();
  reservation.release();
  assert.equal(pool.usedBytes, 0);
});

test("small bodies use a part of the pool that needs no reservation, and at most that part", () => {
  const pool = new BodyPool(64 * MIB, fakeClock());
  let held = 0;
  while (pool.holdSmall(64 * 1024)) held += 1;
  assert.equal(held, 256);
  assert.equal(reserve(pool, "one", 64 * 1024).outcome, "granted");
  pool.releaseSmall(64 * 1024);
  assert.ok(pool.holdSmall(64 * 1024));
});

test("under pressure caches are freed first, then idle sessions, then bodies wait, and the newest is rejected last [R52]", () => {
  const freed: string[] = [];
  const clock = fakeClock();
  const memory: MemoryBudget = createMemoryBudget(clock);
  const left = { cache: 1, sessions: 2 };
  for (const of of ["cache", "sessions"] as const)
    memory.onShortage(of, {
      reclaim(largest) {
        if (left[of] === 0) return false;
        left[of] -= 1;
        freed.push(of === "sessions" ? `sessions of ${largest}` : of);
        return true;
      },
    });
  new MemoryAccount(memory.sessions, "small").tryGrow(10);
  new MemoryAccount(memory.sessions, "greedy").tryGrow(1_000);
  const body = reserve(memory.bodies, "one", MIB);
  for (let i = 0; i < 4; i++) memory.relieve("tight");
  assert.deepEqual(freed, ["cache", "sessions of greedy", "sessions of greedy"]);
  assert.equal(body.outcome, "granted");
  const paused = reserve(memory.bodies, "two", MIB);
  assert.equal(paused.outcome, "waiting");
  assert.equal(reserve(memory.bodies, "three", 64 * 1024).outcome, "granted", "small bodies are read");
  memory.relieve("full");
  assert.equal(body.outcome, "rejected");
  memory.relieve("normal");
  assert.equal(paused.outcome, "granted");
});

interface TestMessage {
  readonly room: MessageReservation;
  readonly server: number;
  bytes: number;
  mayRead: boolean;
}

test("large messages of servers keep an exact sum, the oldest never waits, and every waiting one resumes [R50]", () => {
  const step = fc.record({ message: fc.nat(9), bytes: fc.nat(40), isOver: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), fc.constantFrom(1, 2, 3), (steps, serverCount) => {
      const pool = new MessagePool(100, fakeClock());
      const servers = Array.from({ length: serverCount }, () => pool.server());
      /** Messages in order of arrival. */
      const open = new Map<number, TestMessage>();
      for (const { message, bytes, isOver } of steps) {
        const server = message % serverCount;
        const state =
          open.get(message) ?? openMessage(servers[server] as ServerMessages, server, () => open.delete(message));
        open.set(message, state);
        if (isOver) {
          open.delete(message);
          state.room.release();
        } else if (state.mayRead) {
          state.bytes += bytes;
          state.mayRead = state.room.resize(state.bytes);
        }
        const all = [...open.values()];
        assert.equal(pool.usedBytes, 3 * sumOf(all));
        const [oldest] = all;
        assert.ok(oldest === undefined || oldest.mayRead, "the oldest one waits");
        const waiting = all.filter(({ mayRead }) => !mayRead);
        if (pool.usedBytes <= pool.limitBytes && new Set(waiting.map((one) => one.server)).size < 2)
          assert.deepEqual(waiting, [], "one waits although there is room");
        const shareBytes = Math.floor(100 / new Set(all.map((one) => one.server)).size);
        const countedBytes = pool.usedBytes - Math.max(0, 3 * (oldest?.bytes ?? 0) - shareBytes);
        assert.ok(countedBytes <= 3 * pool.limitBytes, "waiting messages hold more than the limit");
        for (const { server: owner } of waiting)
          assert.ok(
            countedBytes > pool.limitBytes || 3 * sumOf(all.filter((one) => one.server === owner)) > shareBytes,
            "a server within its share waits although there is room",
          );
      }
    }),
    RUNS,
  );
});

function openMessage(owner: ServerMessages, server: number, rejected: () => void): TestMessage {
  const state: TestMessage = {
    room: owner.open({
      resume: () => {
        state.mayRead = true;
      },
      reject: rejected,
    }),
    server,
    bytes: 0,
    mayRead: true,
  };
  return state;
}

function sumOf(charged: readonly { readonly bytes: number }[]): number {
  return charged.reduce((sum, { bytes }) => sum + bytes, 0);
}

test("whatever others hold, stall or send slowly, a message of a fair server arrives in time [R50]", async () => {
  const KIB = 1024;
  /** `rate` is in KiB per second; below 6.4, a message counts as stalled. */
  const hostile = fc.record({ server: fc.nat(3), startKib: fc.integer({ min: 65, max: 4_000 }), rate: fc.nat(20) });
  await fc.assert(
    fc.asyncProperty(
      fc.array(hostile, { minLength: 1, maxLength: 12 }),
      fc.integer({ min: 66, max: 600 }),
      async (list, fairKib) => {
        const clock = fakeClock();
        const pool = new MessagePool(8 * MIB, clock);
        const servers = Array.from({ length: 4 }, () => pool.server());
        const open = new Map<number, TestMessage & { rate: number }>();
        for (const [index, { server, startKib, rate }] of list.entries()) {
          const state = Object.assign(
            openMessage(servers[server] as ServerMessages, server, () => open.delete(index)),
            {
              rate,
            },
          );
          open.set(index, state);
          while (state.mayRead && state.bytes < startKib * KIB) {
            state.bytes += Math.min(64 * KIB, startKib * KIB - state.bytes);
            state.mayRead = state.room.resize(state.bytes);
          }
        }
        let isFairRejected = false;
        const fair = openMessage(pool.server(), 4, () => {
          isFairRejected = true;
        });
        let seconds = 0;
        for (; fair.bytes < fairKib * KIB; seconds++) {
          assert.ok(seconds < 60, "the fair message still waits after a minute");
          while (fair.mayRead && fair.bytes < fairKib * KIB) {
            fair.bytes += 64 * KIB;
            fair.mayRead = fair.room.resize(fair.bytes);
          }
          for (const state of open.values())
            if (state.mayRead && state.rate > 0) {
              state.bytes += state.rate * KIB;
              state.mayRead = state.room.resize(state.bytes);
            }
          await clock.advance(1_000);
          assert.ok(!isFairRejected);
          assert.equal(pool.usedBytes, 3 * (sumOf([...open.values()]) + fair.bytes));
        }
        fair.room.release();
        for (const { room } of [...open.values()]) room.release();
        assert.deepEqual([pool.usedBytes, clock.pending()], [0, 0]);
      },
    ),
    { ...RUNS, numRuns: 200 },
  );
});

test("held messages stay within the limit, and their release resumes messages that wait", () => {
  fc.assert(
    fc.property(fc.array(fc.record({ bytes: fc.integer({ min: 1, max: 60 }), isRelease: fc.boolean() })), (steps) => {
      const pool = new MessagePool(100, fakeClock());
      const server = pool.server();
      const held: { bytes: number; release: () => void }[] = [];
      const heldBytes = (): number => held.reduce((sum, { bytes }) => sum + bytes, 0);
      for (const { bytes, isRelease } of steps) {
        if (isRelease) {
          held.shift()?.release();
          continue;
        }
        const isOnlyOne = held.length === 0;
        const release = server.hold(bytes);
        if (release !== undefined) held.push({ bytes: bytes * 3, release });
        assert.equal(release !== undefined, isOnlyOne || heldBytes() + (release ? 0 : bytes * 3) <= 100);
        assert.equal(pool.usedBytes, heldBytes());
        assert.equal(server.bytes, heldBytes(), "held messages count toward the share of their server");
      }
      if (held.length === 0) return;
      let isResumed = false;
      const oldest = server.open({ resume: assert.fail, reject: assert.fail });
      const waiting = server.open({ resume: () => (isResumed = true), reject: assert.fail });
      const mayRead = waiting.resize(34);
      assert.equal(mayRead, heldBytes() + 102 <= 100);
      for (const { release } of held) release();
      oldest.release();
      assert.equal(isResumed, true);
      waiting.release();
      assert.equal(pool.usedBytes, 0);
    }),
    RUNS,
  );
});

test("a stalled message is rejected after 10 s, only while another waits, and never once it was received", async () => {
  for (const isReceived of [false, true]) {
    const clock = fakeClock();
    const pool = new MessagePool(MIB, clock);
    const outcomes: string[] = [];
    const early = pool.server().open({ resume: () => undefined, reject: () => void outcomes.push("early rejected") });
    const stalled = pool.server().open({ resume: () => undefined, reject: () => void outcomes.push("rejected") });
    early.resize(100);
    stalled.resize(349_000);
    await clock.advance(60_000);
    assert.deepEqual([outcomes, clock.pending()], [[], 0], "nobody waits");
    if (isReceived) stalled.received();
    early.received();
    const waiting = pool.server().open({ resume: () => void outcomes.push("resumed"), reject: assert.fail });
    assert.equal(waiting.resize(70_000), false);
    await clock.advance(1_000);
    assert.deepEqual(outcomes, isReceived ? [] : ["resumed", "rejected"]);
    stalled.release();
    assert.deepEqual(outcomes, isReceived ? ["resumed"] : ["resumed", "rejected"]);
    waiting.release();
    assert.equal(clock.pending(), 0);
  }
});

interface TestStream {
  readonly name: number;
  readonly client: string;
  readonly account: StreamAccount;
  bytes: number;
  isCut: boolean;
}

test("streams are charged exactly, and those that are cut waited the longest of the largest client [R50]", () => {
  const LIMIT = 100;
  const SHARE = 50;
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant("resize" as const), stream: fc.nat(11), bytes: fc.nat(60) }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("close" as const), stream: fc.nat(11), bytes: fc.nat(0) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("hold" as const), stream: fc.nat(2), bytes: fc.nat(60) }) },
  );
  let cuts = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const pool = new StreamPool(LIMIT);
      /** Charged streams. The one that has waited the longest is first. */
      let waiting: TestStream[] = [];
      const held = new Map<string, number>();
      const streams = new Map<number, TestStream>();
      const bytesOf = (client: string): number =>
        (held.get(client) ?? 0) + sumOf(waiting.filter((one) => one.client === client));
      const usedBytes = (): number => sumOf(waiting) + [...held.values()].reduce((sum, bytes) => sum + bytes, 0);
      /** The client whose growth is not yet checked against its share; undefined while the pool makes room for all. */
      let growing: string | undefined;
      const open = (name: number): TestStream => {
        const client = `client ${name % 3}`;
        const account = pool.open(client, () => {
          const own = waiting.filter((one) => one.client === client);
          assert.equal(own[0], stream, "another stream of the client has waited longer");
          if (growing !== client || bytesOf(client) <= SHARE || own.length < 2) {
            assert.ok(usedBytes() > LIMIT, "there was room");
            for (const { client: other } of waiting) assert.ok(bytesOf(other) <= bytesOf(client), "not the largest");
          }
          waiting = waiting.filter((one) => one !== stream);
          stream.isCut = true;
          cuts += 1;
        });
        const stream: TestStream = { name, client, account, bytes: 0, isCut: false };
        return stream;
      };
      for (const { kind, stream: name, bytes } of steps) {
        if (kind === "hold") {
          const client = `client ${name}`;
          const before = held.get(client) ?? 0;
          const fitsShare = bytesOf(client) === 0 || bytesOf(client) + bytes <= SHARE;
          growing = undefined;
          held.set(client, before + bytes);
          const isCharged = fitsShare && pool.tryCharge(client, bytes);
          if (!isCharged) held.set(client, before);
        } else {
          let stream = streams.get(name);
          if (stream === undefined || stream.isCut) stream = open(name);
          streams.set(name, stream);
          const next = kind === "close" ? 0 : bytes;
          if (next < stream.bytes || stream.bytes === 0) waiting = waiting.filter((one) => one !== stream);
          if (next > 0 && !waiting.includes(stream)) waiting.push(stream);
          stream.bytes = next;
          growing = stream.client;
          if (kind === "resize") stream.account.resize(bytes);
          else {
            stream.account.close();
            streams.delete(name);
          }
          const own = waiting.filter((one) => one.client === stream.client);
          assert.ok(bytesOf(stream.client) <= SHARE || own.length <= 1 || next === 0, "a client is beyond its share");
        }
        assert.equal(pool.usedBytes, usedBytes());
        assert.ok(pool.usedBytes <= LIMIT || waiting.length <= 1, "all together are beyond the limit");
      }
      for (const { account } of streams.values()) account.close();
      for (const [client, bytes] of held) pool.release(client, bytes);
      assert.deepEqual([pool.usedBytes, pool.clients], [0, 0]);
    }),
    RUNS,
  );
  assert.ok(cuts > 300, `only ${cuts} streams were cut`);
});

test("when memory is full and no body is left to reject, a stream of the largest client is cut [R52]", () => {
  const memory = createMemoryBudget(fakeClock());
  const cut: string[] = [];
  for (const [client, bytes] of [
    ["small", 10],
    ["greedy", 90],
    ["greedy", 20],
  ] as const)
    memory.streams.open(client, () => cut.push(`${client} ${bytes}`)).resize(bytes);
  memory.relieve("tight");
  assert.deepEqual(cut, []);
  memory.relieve("full");
  assert.deepEqual(cut, ["greedy 90"]);
});
