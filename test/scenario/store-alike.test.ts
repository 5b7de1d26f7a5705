/**
 * The three stores behave alike: random operations on each give the same results, concurrent additions never exceed a
 * limit, and listings show every key.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { openFolderStore } from "../../src/store/folder-store.ts";
import { ONLY_ENDED } from "../../src/store/holds.ts";
import { createMemoryStore } from "../../src/store/memory-store.ts";
import { openRedisStore } from "../../src/store/redis-store.ts";
import { type Store, storeNamespace } from "../../src/store/store.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

const closing: (() => unknown)[] = [];
after(async () => {
  for (const close of closing.reverse()) await close();
});

async function stores(): Promise<Store[]> {
  const folder = mkdtempSync(join(tmpdir(), "store-"));
  closing.push(() => rmSync(folder, { recursive: true, force: true }));
  const all: Store[] = [
    createMemoryStore(systemClock),
    await openFolderStore(folder, { clock: systemClock, logger: silentLogger }),
  ];
  if (skipWithoutRedis === false) {
    const server = await startRedis();
    closing.push(server.close);
    all.push(await openRedisStore({ url: server.url, prefix: "t*[x]:", timeoutMs: 5_000 }, silentLogger, systemClock));
  }
  for (const store of all) closing.push(store.close);
  return all;
}

const ALL = await stores();
const FAR = Date.now() + 3_600_000;

const key = fc.constantFrom("a", "b", "b*", "ünïcode key", "n/c", "n/d[1]");
const value = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 20 }),
  fc.constantFrom("", "0", "7", "\n", "\u0000\r\n"),
);
const expiresAtMs = fc.constantFrom(undefined, FAR, 1, 1_000);
const operation = fc.oneof(
  fc.record({ op: fc.constant("get" as const), key }),
  fc.record({ op: fc.constant("set" as const), key, value, expiresAtMs }),
  fc.record({ op: fc.constant("delete" as const), key }),
  fc.record({
    op: fc.constant("replace" as const),
    key,
    expected: fc.option(value, { nil: undefined }),
    value,
    expiresAtMs,
  }),
  fc.record({
    op: fc.constant("add" as const),
    key,
    amount: fc.integer({ min: -5, max: 20 }),
    limit: fc.constantFrom(undefined, 0, 10, 30),
    expiresAtMs,
  }),
  fc.record({ op: fc.constant("list" as const), prefix: fc.constantFrom("", "b", "b*", "n/", "none") }),
);
type Operation = typeof operation extends fc.Arbitrary<infer Made> ? Made : never;

function options<Options extends { expiresAtMs?: number | undefined; limit?: number | undefined }>(given: Options) {
  return {
    ...(given.expiresAtMs === undefined ? {} : { expiresAtMs: given.expiresAtMs }),
    ...(given.limit === undefined ? {} : { limit: given.limit }),
  };
}

async function run(store: Store, one: Operation): Promise<unknown> {
  try {
    switch (one.op) {
      case "get":
        return await store.get(one.key);
      case "set":
        return await store.set(one.key, one.value, options(one));
      case "delete":
        return await store.delete(one.key);
      case "replace":
        return await store.replace(one.key, one.expected, one.value, options(one));
      case "add":
        return await store.add(one.key, one.amount, options(one));
      case "list":
        return await all(store, one.prefix);
    }
  } catch (error) {
    return (error as Error).name;
  }
}

async function all(store: Store, prefix: string): Promise<string[]> {
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await store.list(prefix, cursor);
    found.push(...page.entries.map((entry) => `${entry.key}=${entry.value}`));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return [...new Set(found)].sort();
}

test("random operations give the same results in memory, in a folder and in Redis", {
  skip: skipWithoutRedis,
}, async () => {
  let round = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 1, maxLength: 40 }), async (operations) => {
      const names = `r${round++}`;
      const views = ALL.map((store) => storeNamespace(store, names, undefined));
      for (const [index, one] of operations.entries()) {
        const results = await Promise.all(views.map((store) => run(store, one)));
        for (const result of results.slice(1)) assert.deepEqual(result, results[0], `${index}: ${JSON.stringify(one)}`);
      }
    }),
    { numRuns: 150 },
  );
});

test("random holds give the same results in memory, in a folder and in Redis", { skip: skipWithoutRedis }, async () => {
  const amount = fc.integer({ min: 0, max: 20 });
  const change = fc.record({
    key: fc.constantFrom("a", "b"),
    amount,
    limit: fc.constantFrom(undefined, 30, 60),
    owner: fc.constantFrom("one", "two", ""),
    /** Added to the last number. 1 is the next operation, less repeats one, and more means that some were lost. */
    step: fc.constantFrom(1, 1, 1, 0, -1, -2, 3, 80),
    taken: amount,
    released: amount,
    renewed: fc.option(fc.record({ amount, isExact: fc.boolean() }), { nil: undefined }),
    /** Ends at once, or not during the test. */
    forMs: fc.constantFrom(0, 3_600_000),
  });
  let round = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 40 }), async (changes) => {
      const name = `h${round++}`;
      const views = ALL.map((store) => storeNamespace(store, name, undefined));
      const numbers = new Map<string, number>();
      for (const { key: counter, amount: added, limit, owner, step, taken, released, renewed, forMs } of changes) {
        const holder = `${counter} ${owner}`;
        const sequence = Math.max(0, (numbers.get(holder) ?? 0) + step);
        numbers.set(holder, Math.max(sequence, numbers.get(holder) ?? 0));
        const hold = { owner, sequence, taken, released, forMs, ...(renewed === undefined ? {} : { renewed }) };
        const results = await Promise.all(
          views.map((store) => store.add(counter, added, { ...(limit === undefined ? {} : { limit }), hold })),
        );
        for (const result of results.slice(1)) assert.deepEqual(result, results[0], JSON.stringify(hold));
      }
    }),
    { numRuns: 150 },
  );
});

test("a folder that is opened again ends what a killed process held", async () => {
  const folder = mkdtempSync(join(tmpdir(), "store-"));
  closing.push(() => rmSync(folder, { recursive: true, force: true }));
  const clock = fakeClock(Date.now());
  const before = await openFolderStore(folder, { clock, logger: silentLogger });
  const hold = { owner: "killed", sequence: 1, taken: 40, forMs: 30_000 };
  assert.equal((await before.add("budget", 2, { expiresAtMs: FAR, hold })).total, 42);
  await before.close();
  await clock.advance(10_000);
  const after = await openFolderStore(folder, { clock, logger: silentLogger });
  const total = async (): Promise<number> => (await after.add("budget", 0, { hold: ONLY_ENDED })).total;
  assert.equal(await total(), 42);
  await clock.advance(20_000);
  assert.equal(await total(), 2);
  await after.close();
});

for (const store of ALL) {
  for (const value of ["", "\n", " 1", "0x10", "1e3", "-1", "1.5", "one"]) {
    test(`${store.kind}: ${JSON.stringify(value)} is no counter`, async () => {
      await store.set("text", value);
      await assert.rejects(store.add("text", 0), TypeError);
    });
  }

  test(`${store.kind}: concurrent additions never exceed the limit, and every unit up to it is granted`, async () => {
    const results = await Promise.all(
      Array.from({ length: 200 }, (_, i) => store.add("budget", 1 + (i % 3), { limit: 100, expiresAtMs: FAR })),
    );
    const granted = results.reduce((sum, { isAdded }, i) => sum + (isAdded ? 1 + (i % 3) : 0), 0);
    const { total } = await store.add("budget", 0);
    assert.equal(total, granted);
    assert.ok(total <= 100 && total >= 98, String(total));
    assert.deepEqual(await store.add("budget", -1_000), { isAdded: true, total: 0 });
  });

  test(`${store.kind}: a listing of several pages shows every key once or more`, async () => {
    const view = storeNamespace(store, "many", undefined);
    await Promise.all(Array.from({ length: 1_700 }, (_, i) => view.set(`k${i}`, String(i))));
    assert.equal((await all(view, "k")).length, 1_700);
    assert.equal((await all(view, "k169")).length, 11);
  });

  test(`${store.kind}: a key or value that is too large is refused`, async () => {
    await assert.rejects(store.set("k".repeat(1_025), ""), RangeError);
    await assert.rejects(store.set("k", "v".repeat(1024 * 1024 + 1)), RangeError);
    await assert.rejects(store.add("k", 0.5), RangeError);
    await assert.rejects(store.add("k2", Number.MAX_SAFE_INTEGER + 1), RangeError);
  });
}
