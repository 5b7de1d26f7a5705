import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { ONLY_ENDED } from "./holds.ts";
import { createRemoteStore, type StoreRequest } from "./remote-store.ts";
import { type Change, StoreUnavailable } from "./store.ts";
import { Table } from "./table.ts";

const LIMITS = { maxBytes: 20_000, cacheBytes: 8_000 };
const value = (chars: number): string => "x".repeat(chars);

test("the least recently used cached responses are evicted for new ones [R53]", () => {
  const table = new Table(fakeClock(), undefined, LIMITS);
  for (let i = 0; i < 4; i++) table.set(`llm-cache/${i}`, value(1_800));
  table.get("llm-cache/0");
  table.set("llm-cache/4", value(1_800));
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((n) => table.get(`llm-cache/${n}`) !== undefined),
    [true, false, true, true, true],
  );
  assert.throws(() => table.set("llm-cache/large", value(9_000)), StoreUnavailable);
  assert.ok(table.get("llm-cache/4"), "what cannot fit evicts nothing");
});

test("several listings at once, with changes in between, have each key that stays exactly once and in order", () => {
  const names = Array.from({ length: 3_000 }, (_, i) => `${"abc"[i % 3]}/${(i * 7_919) % 3_000}`);
  const prefixes = fc.array(fc.constantFrom("", "a", "a/", "b/", "b/1", "none"), { minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(prefixes, fc.infiniteStream(fc.nat()), (listed, random) => {
      const table = new Table(fakeClock());
      for (const name of names) table.set(name, name);
      const pick = (below: number): number => (random.next().value as number) % below;
      const staying = new Set(names);
      const listings = listed.map((prefix) => ({
        prefix,
        keys: [] as string[],
        cursor: undefined as string | undefined,
      }));
      const open = new Set(listings);
      while (open.size > 0) {
        const listing = [...open][pick(open.size)] as (typeof listings)[number];
        const page = table.list(listing.prefix, listing.cursor);
        listing.keys.push(...page.entries.map(({ key }) => key));
        listing.cursor = page.cursor;
        if (page.cursor === undefined) open.delete(listing);
        const changed = names[pick(names.length)] as string;
        staying.delete(changed);
        if (pick(2) === 0) table.delete(changed);
        table.set(`${changed}+`, "");
      }
      for (const { prefix, keys } of listings) {
        assert.deepEqual(keys, [...new Set(keys)].sort());
        const found = new Set(keys);
        for (const name of staying) assert.equal(found.has(name), name.startsWith(prefix), `${prefix}: ${name}`);
      }
    }),
    { numRuns: 30 },
  );
});

test("holds are those of the stored text, also after writes that failed", async () => {
  const step = fc.record({
    owner: fc.constantFrom("a", "b"),
    amount: fc.nat(5),
    taken: fc.nat(20),
    released: fc.nat(20),
    limit: fc.option(fc.nat(60), { nil: undefined }),
    failing: fc.constantFrom("no write", "no write", "no write", "all writes", "the second write"),
    isRepeated: fc.boolean(),
    waitMs: fc.constantFrom(0, 0, 400, 1_200),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const clock = fakeClock();
      let writes = 0;
      let failing = "no write";
      const table = new Table(clock, () => {
        writes += 1;
        if (failing === "all writes" || (failing === "the second write" && writes === 2))
          throw new StoreUnavailable("");
      });
      const sequences = { a: 0, b: 0 };
      for (const one of steps) {
        const owner = one.owner as "a" | "b";
        const { amount, taken, released, limit } = one;
        await clock.advance(one.waitMs);
        if (!one.isRepeated || sequences[owner] === 0) sequences[owner] += 1;
        [writes, failing] = [0, one.failing];
        try {
          const hold = { owner, sequence: sequences[owner], taken, released, forMs: 1_000 };
          table.add("budgets/x", amount, { limit, hold });
        } catch (error) {
          assert.ok(error instanceof StoreUnavailable);
        }
        failing = "no write";
        const reloaded = new Table(clock);
        for (const change of table.changes()) reloaded.load(change);
        const probe = { hold: { owner, sequence: sequences[owner] + 1, taken: 1, released: 50, forMs: 1_000 } };
        const copy = new Table(clock);
        for (const change of table.changes()) copy.load(change);
        assert.deepEqual(
          table.add("budgets/x", 0, { hold: ONLY_ENDED }),
          copy.add("budgets/x", 0, { hold: ONLY_ENDED }),
        );
        sequences[owner] += 1;
        assert.deepEqual(table.add("budgets/x", 0, probe), reloaded.add("budgets/x", 0, probe), JSON.stringify(steps));
      }
    }),
  );
});

test("other entries are rejected when the table is full, and budgets and keys never because of others [R53]", () => {
  const table = new Table(fakeClock(), undefined, LIMITS);
  table.set("llm-cache/a", value(7_000));
  let sessions = 0;
  assert.throws(() => {
    for (; sessions < 1_000; sessions++) table.set(`mcp-sessions/${sessions}`, value(1_000));
  }, StoreUnavailable);
  assert.ok(sessions > 5);
  table.set("mcp-sessions/0", value(900));
  for (let i = 0; i < 10; i++) table.add(`budgets/${i}`, 1);
  for (let i = 0; i < 10; i++) table.add(`budgets/${i}`, 1_000_000);
  table.set("api-keys/one", value(1_500));
  assert.equal(table.get("llm-cache/a"), undefined, "the cache made room for them");
  assert.equal(table.get("budgets/3"), "1000001");
});

test("after any writes, expiries and drops, the bytes are those of the entries and within the limits [R53]", async () => {
  const namespace = fc.constantFrom("llm-cache", "mcp-sessions", "signins", "budgets");
  const step = fc.record({
    kind: fc.constantFrom("set", "set", "set", "delete", "load", "drop", "wait", "get"),
    key: fc.tuple(namespace, fc.nat(20)).map(([name, n]) => `${name}/${n}`),
    chars: fc.nat(3_000),
    isWide: fc.boolean(),
    ttlMs: fc.constantFrom(0, 500, 5_000),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 80 }), async (steps) => {
      const clock = fakeClock();
      const journal: Change[] = [];
      const table = new Table(clock, (change) => journal.push(change), LIMITS);
      for (const { kind, key, chars, isWide, ttlMs } of steps) {
        const text = isWide ? "€".repeat(chars / 3) : value(chars);
        const expiresAtMs = ttlMs === 0 ? 0 : clock.now() + ttlMs;
        if (kind === "delete") table.delete(key);
        else if (kind === "get") table.get(key);
        else if (kind === "drop") table.dropCache();
        else if (kind === "wait") await clock.advance(1_000);
        else if (kind === "load") table.load([key, text, expiresAtMs]);
        else
          try {
            table.set(key, text, expiresAtMs);
          } catch (error) {
            assert.ok(error instanceof StoreUnavailable);
            assert.notEqual(table.get(key), text);
          }
        assert.ok(table.cachedBytes <= LIMITS.cacheBytes);
        assert.ok(table.cachedBytes <= table.bytes);
      }
      // A table rebuilt from its entries has the same size.
      await clock.advance(10_000);
      const copy = new Table(clock);
      for (const change of table.changes()) copy.load(change);
      assert.equal(copy.bytes, table.bytes);
      assert.equal(copy.cachedBytes, table.cachedBytes);
      table.close();
      copy.close();
    }),
    { seed: 1, numRuns: 150 },
  );
});

test("a journal of a process with more memory is loaded within the limits, with all logins and budgets [R53]", () => {
  const table = new Table(fakeClock(), undefined, LIMITS);
  let leftOut = 0;
  for (let i = 0; i < 50; i++)
    for (const name of ["llm-cache", "mcp-sessions", "mcp-vault", "budgets"])
      if (!table.load([`${name}/${i}`, value(name === "budgets" ? 3 : 400), 0])) leftOut += 1;
  assert.ok(leftOut > 20);
  assert.ok(table.cachedBytes <= LIMITS.cacheBytes);
  for (let i = 0; i < 50; i++) assert.ok(table.get(`mcp-vault/${i}`) && table.get(`budgets/${i}`));
});

test("expired entries are removed in slices of the same size, whatever the number of entries, until all are gone", async () => {
  const SLICE = 5_000;
  for (const slices of [1, 4, 9]) {
    const clock = fakeClock();
    const table = new Table(clock);
    const entries = slices * SLICE - 1;
    for (let i = 0; i < entries; i++) table.set(`signins/${i}`, "x", clock.now() + 500);
    for (let left = entries; left > 0; ) {
      await clock.advance(1_000);
      assert.equal(left - table.size, Math.min(left, SLICE), `${entries} entries, ${left} left`);
      left = table.size;
    }
    // The next sweep finds the end, and the timer starts again with the next entry.
    await clock.advance(1_000);
    assert.deepEqual([table.bytes, clock.pending()], [0, 0]);
    table.set("signins/new", "x", clock.now() + 500);
    await clock.advance(1_000);
    assert.equal(table.size, 0);
    table.close();
  }
});

test("entries that do not expire are visited in slices too", async () => {
  const clock = fakeClock();
  const table = new Table(clock);
  let sweeps = 0;
  for (let i = 0; i < 12_000; i++) table.set(`mcp-vault/${i}`, "x");
  table.set("signins/last", "x", clock.now() + 1);
  for (; table.size > 12_000; sweeps++) await clock.advance(1_000);
  assert.equal(sweeps, 3);
  table.close();
});

test("a thread sends no entries that can be rejected while the main thread is short of memory or behind [R54]", async () => {
  const sent: StoreRequest[] = [];
  let isShort = false;
  const send = (question: StoreRequest): void => void sent.push(question);
  const store = createRemoteStore("memory", fakeClock(), send, { isShort: () => isShort });
  const large = value(3 * 1024 * 1024);
  const waiting = [store.set("llm-cache/1", large), store.set("llm-cache/2", large)];
  await assert.rejects(store.set("mcp-sessions/3", large), /too many values wait/);
  waiting.push(store.set("api-keys/4", "k"));
  for (const { id } of sent) store.answered({ type: "store result", id });
  await Promise.all(waiting);
  isShort = true;
  await assert.rejects(store.set("llm-cache/5", "x"), /memory is short/);
  await assert.rejects(store.replace("mcp-sessions/5", undefined, "x"), StoreUnavailable);
  const count = sent.length;
  void store.add("budgets/1", 1);
  void store.replace("api-keys/1", undefined, "x");
  assert.equal(sent.length, count + 2);
  isShort = false;
  void store.set("llm-cache/6", large);
  assert.equal(sent.length, count + 3);
});
