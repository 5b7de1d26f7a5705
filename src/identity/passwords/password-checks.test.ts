import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import fc from "fast-check";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type CheckRequest, PasswordChecks, type PasswordHash, type PasswordThread } from "./password-checks.ts";

const bcrypt = (hash: string): PasswordHash => ({ kind: "bcrypt", hash });
const U_U = "$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

/** Published hashes of `crypt(3)` and `openssl passwd -apr1`, and the SHA-1 of "secret". */
const KNOWN: [password: string, hash: PasswordHash, matches: boolean][] = [
  ["U*U", bcrypt(`$2a${U_U}`), true],
  ["U*U", bcrypt(`$2y${U_U}`), true],
  ["U*V", bcrypt(`$2a${U_U}`), false],
  ["", bcrypt(`$2a${U_U}`), false],
  ["secret", { kind: "apr1", salt: "saltsalt", hash: "LrttParrLPdxvgutaSXWJ0" }, true],
  ["Secret", { kind: "apr1", salt: "saltsalt", hash: "LrttParrLPdxvgutaSXWJ0" }, false],
  ["secret", { kind: "sha1", hash: "5en6G6MezRroT3XKqkdPOmY/BfQ=" }, true],
  ["secret ", { kind: "sha1", hash: "5en6G6MezRroT3XKqkdPOmY/BfQ=" }, false],
];

test("the thread computes every kind of hash", async () => {
  const checks = new PasswordChecks(fakeClock());
  for (const [password, hash, expected] of KNOWN)
    assert.equal(await checks.matches("192.0.2.1", password, hash), expected, `${password} ${JSON.stringify(hash)}`);
});

const broken: [name: string, start: () => Worker][] = [
  [
    "cannot be started",
    () => {
      throw new Error("no threads here");
    },
  ],
  ["throws", () => new Worker("throw new Error('x')", { eval: true })],
  ["exits without a result", () => new Worker("process.exit(0)", { eval: true })],
];
for (const [name, start] of broken) {
  test(`a thread that ${name} fails the check with 503, and a later thread serves again`, async () => {
    let isBroken = true;
    const worker = new URL("./password-worker.js", import.meta.url);
    const checks = new PasswordChecks(fakeClock(), () => (isBroken ? start() : new Worker(worker)));
    const hash = bcrypt(`$2a${U_U}`);
    await assert.rejects(checks.matches("192.0.2.1", "U*U", hash), { code: "not_ready", status: 503 });
    isBroken = false;
    assert.equal(await checks.matches("192.0.2.1", "U*U", hash), true);
  });
}

test("a check whose thread ended runs again in a new thread", async () => {
  let started = 0;
  const worker = new URL("./password-worker.js", import.meta.url);
  const checks = new PasswordChecks(fakeClock(), () => {
    started += 1;
    return started === 1 ? new Worker("process.exit(0)", { eval: true }) : new Worker(worker);
  });
  assert.equal(await checks.matches("192.0.2.1", "U*U", bcrypt(`$2a${U_U}`)), true);
  assert.equal(started, 2);
});

/** A fake thread that completes a check on demand; each password is unique. */
class ManualThread extends EventEmitter implements PasswordThread {
  readonly requests: CheckRequest[] = [];
  isReferenced = true;
  isTerminated = false;

  postMessage(request: CheckRequest): void {
    this.requests.push(request);
  }
  ref(): void {
    this.isReferenced = true;
  }
  unref(): void {
    this.isReferenced = false;
  }
  terminate(): Promise<void> {
    this.isTerminated = true;
    return Promise.resolve();
  }
  /** Completes the running check and returns its password. */
  complete(): string | undefined {
    const request = this.requests.shift();
    if (request !== undefined) this.emit("message", { id: request.id, matches: false });
    return request?.password;
  }
}

const HASH: PasswordHash = { kind: "sha1", hash: "" };

test("a client waits for at most one check of each other client, however many they sent [R70]", () => {
  fc.assert(
    fc.property(fc.array(fc.nat({ max: 5 }), { minLength: 1, maxLength: 200 }), (senders) => {
      const thread = new ManualThread();
      const checks = new PasswordChecks(fakeClock(), () => thread);
      const accepted = new Map<number, number>();
      for (const sender of senders) {
        try {
          checks.matches(`192.0.2.${sender}`, String(sender), HASH).catch(() => undefined);
          accepted.set(sender, (accepted.get(sender) ?? 0) + 1);
        } catch (error) {
          assert.equal((error as { code?: string }).code, "overloaded");
        }
      }
      const order: number[] = [];
      for (let done = thread.complete(); done !== undefined; done = thread.complete()) order.push(Number(done));
      assert.equal(
        order.length,
        [...accepted.values()].reduce((sum, count) => sum + count, 0),
      );
      // Between two checks of one client, every other client had at most one; the first check was already running.
      for (const sender of accepted.keys()) {
        const places = order.flatMap((one, place) => (one === sender ? [place] : []));
        for (const [nth, place] of places.entries()) {
          const between = order.slice(nth === 0 ? 1 : (places[nth - 1] as number) + 1, place);
          assert.equal(new Set(between).size, between.length, `${order}`);
        }
      }
      return true;
    }),
    { seed: 1, numRuns: 100 },
  );
});

test("one client's queue is bounded, and the next client is served at once [R70]", async () => {
  const thread = new ManualThread();
  const checks = new PasswordChecks(fakeClock(), () => thread);
  const send = (address: string): boolean => {
    try {
      checks.matches(address, address, HASH).catch(() => undefined);
      return true;
    } catch {
      return false;
    }
  };
  const sent = Array.from({ length: 200 }, () => send("2001:db8::1"));
  assert.equal(sent.filter(Boolean).length, 21, "one runs, 20 wait");
  assert.equal(send("2001:db8:0:0:ffff::2"), false, "the same /64 is the same client");
  assert.equal(send("2001:db8:0:1::1"), true);
  assert.equal(thread.complete(), "2001:db8::1");
  assert.equal(thread.complete(), "2001:db8::1");
  assert.equal(thread.complete(), "2001:db8:0:1::1");
});

test("all queues together are bounded: the client with the most waiting checks makes room [R70]", async () => {
  const thread = new ManualThread();
  const checks = new PasswordChecks(fakeClock(), () => thread);
  const codes = new Map<string, number>();
  const send = (address: string): Promise<boolean> => {
    const check = checks.matches(address, address, HASH);
    check.catch((error: { code: string }) => codes.set(error.code, (codes.get(error.code) ?? 0) + 1));
    return check;
  };
  void send("10.0.0.0");
  for (let i = 0; i < 1_000; i++) void send(`10.0.${i % 50}.1`);
  const honest = send("192.0.2.1");
  await new Promise(setImmediate);
  assert.deepEqual([...codes], [["overloaded", 1]]);
  let done: string | undefined;
  for (let turns = 0; done !== "192.0.2.1" && turns < 100; turns++) done = thread.complete();
  assert.equal(await honest, false);
  // With one waiting check each, no client loses one.
  const crowd = new PasswordChecks(fakeClock(), () => new ManualThread());
  for (let i = 0; i <= 1_000; i++) crowd.matches(`10.1.${i >> 8}.${i & 255}`, "", HASH).catch(() => undefined);
  assert.throws(() => crowd.matches("192.0.2.1", "", HASH), { code: "overloaded", status: 503 });
});

test("an idle thread does not keep the process alive and ends after 30 s", async () => {
  const clock = fakeClock();
  const threads: ManualThread[] = [];
  const checks = new PasswordChecks(clock, () => {
    const thread = new ManualThread();
    threads.push(thread);
    return thread;
  });
  const first = checks.matches("192.0.2.1", "a", HASH);
  assert.equal(threads[0]?.isReferenced, true);
  threads[0]?.complete();
  await first;
  assert.equal(threads[0]?.isReferenced, false);
  await clock.advance(30_000);
  assert.equal(threads[0]?.isTerminated, true);
  threads[0]?.emit("exit");
  const second = checks.matches("192.0.2.1", "b", HASH);
  threads[1]?.complete();
  assert.equal(await second, false);
});
