import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { type RedisReply, scriptedRedis } from "../../test/support/store/scripted-redis.ts";
import { silentLogger } from "../record/log/logger.ts";
import { openRedisStore } from "./redis-store.ts";
import { MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, type Store, StoreUnavailable } from "./store.ts";

const PREFIX = "gateway:";
const settings = { prefix: PREFIX, timeoutMs: 60_000 };

/** Every operation that reads a value from Redis, with what it returns for a valid one. */
const READS: Readonly<Record<string, (store: Store) => Promise<unknown>>> = {
  get: async (store) => [await store.get("a/1")],
  list: async (store) => (await store.list("a/")).entries.map(({ value }) => value),
};

for (const [name, read] of Object.entries(READS))
  test(`${name} rejects values that are larger than those of the gateway`, async (t) => {
    let value = "";
    const replies: Readonly<Record<string, () => RedisReply>> = {
      get: () => value,
      scan: () => ["0", [`${PREFIX}a/1`]],
      mget: () => [value],
    };
    const { url } = await scriptedRedis(t, (command) => replies[command]?.());
    const store = await openRedisStore({ ...settings, url }, silentLogger, fakeClock());
    t.after(store.close);
    for (const text of ["", "x", "x".repeat(MAX_VALUE_BYTES)]) {
      value = text;
      assert.deepEqual(await read(store), [text]);
    }
    for (const text of ["x".repeat(MAX_VALUE_BYTES + 1), "€".repeat(MAX_VALUE_BYTES / 2)]) {
      value = text;
      await assert.rejects(read(store), StoreUnavailable);
    }
  });

test("a value that is missing between the two commands of a list is left out", async (t) => {
  const { url } = await scriptedRedis(t, (command) =>
    command === "scan" ? ["7", ["a", "b"].map((key) => PREFIX + key)] : command === "mget" ? [null, "1"] : undefined,
  );
  const store = await openRedisStore({ ...settings, url }, silentLogger, fakeClock());
  t.after(store.close);
  assert.deepEqual(await store.list(""), { entries: [{ key: "b", value: "1" }], cursor: "7" });
});

test("messages that are larger than those of the gateway are dropped", async (t) => {
  const redis = await scriptedRedis(t, () => undefined);
  const store = await openRedisStore({ ...settings, url: redis.url }, silentLogger, fakeClock());
  t.after(store.close);
  const received: number[] = [];
  await new Promise<void>((resolve) => {
    const channel = store.bus?.listen("c", (text) => {
      received.push(text.length);
      if (text === "last") resolve();
    });
    void channel?.ready.then(() => {
      for (const text of [
        "x".repeat(MAX_MESSAGE_BYTES),
        "x".repeat(MAX_MESSAGE_BYTES + 1),
        "€".repeat(MAX_MESSAGE_BYTES / 2),
        "last",
      ])
        redis.publish(`${PREFIX}c`, text);
    });
  });
  assert.deepEqual(received, [MAX_MESSAGE_BYTES, "last".length]);
});
