/**
 * Redis as the store when it is away, hangs or comes back: nothing waits longer than the time limit, and the gateway
 * starts and goes on without it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis } from "ioredis";
import { systemClock } from "../../src/base/clock.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { openRedisStore } from "../../src/store/redis-store.ts";
import { StoreUnavailable } from "../../src/store/store.ts";
import { eventually } from "../support/eventually.ts";
import { gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

const skip = skipWithoutRedis;

test("a Redis that goes away: refused at once, and used again when it is back", { skip }, async (t) => {
  const server = await startRedis();
  t.after(server.close);
  const store = await openRedisStore({ url: server.url, prefix: "", timeoutMs: 600_000 }, silentLogger, systemClock);
  t.after(store.close);
  await store.set("a", "1");
  await server.stop();
  await eventually("degraded", () => store.health().state === "degraded");
  // The time limit is ten minutes: nothing waits for it.
  await assert.rejects(store.get("a"), StoreUnavailable);
  await assert.rejects(store.add("n", 1), StoreUnavailable);
  await server.start();
  await eventually("up", () => store.health().state === "up");
  assert.deepEqual(await store.add("n", 1), { isAdded: true, total: 1 });
});

test("a Redis that does not answer: refused after the time limit", { skip }, async (t) => {
  const server = await startRedis();
  t.after(server.close);
  const store = await openRedisStore({ url: server.url, prefix: "", timeoutMs: 200 }, silentLogger, systemClock);
  t.after(store.close);
  // The limit is for connecting too, and a busy machine may need longer for it.
  await eventually("up", () => store.health().state === "up");
  server.freeze();
  const startMs = performance.now();
  await assert.rejects(store.get("a"), StoreUnavailable);
  assert.ok(performance.now() - startMs >= 190);
  await eventually("degraded", () => store.health().state === "degraded");
  server.thaw();
  await eventually("it answers within the limit again", () =>
    store.set("a", "1").then(
      async () => (await store.get("a")) === "1",
      () => false,
    ),
  );
});

for (const minutes of [-10, 10])
  test(`entries live as long as intended if the clock of the gateway is off by ${minutes} minutes`, {
    skip,
  }, async (t) => {
    const server = await startRedis();
    t.after(server.close);
    const now = (): number => Date.now() + minutes * 60_000;
    const clock = { ...systemClock, now };
    const store = await openRedisStore({ url: server.url, prefix: "", timeoutMs: 600_000 }, silentLogger, clock);
    t.after(store.close);
    await store.set("set", "1", { expiresAtMs: now() + 60_000 });
    await store.add("added", 1, { expiresAtMs: now() + 60_000 });
    await store.replace("replaced", undefined, "1", { expiresAtMs: now() + 60_000 });
    const redis = new Redis(server.url);
    t.after(() => redis.disconnect());
    for (const key of ["set", "added", "replaced"]) {
      const lifetimeMs = await redis.pttl(key);
      assert.ok(lifetimeMs > 0 && lifetimeMs <= 60_000, `${key}: ${lifetimeMs}`);
    }
  });

test("a wrong password is told", { skip }, async (t) => {
  const server = await startRedis("--requirepass", "right");
  t.after(server.close);
  const wrong = await openRedisStore(
    { url: server.url.replace("//", "//:wrong@"), prefix: "", timeoutMs: 60_000 },
    silentLogger,
    systemClock,
  );
  t.after(wrong.close);
  await assert.rejects(wrong.get("a"), /store unavailable: .*(?:WRONGPASS|NOAUTH)/);
  const right = await openRedisStore(
    { url: server.url.replace("//", "//:right@"), prefix: "", timeoutMs: 60_000 },
    silentLogger,
    systemClock,
  );
  t.after(right.close);
  assert.equal(await right.get("a"), undefined);
});

test("a gateway starts while Redis is away, says so, and shows no password", { skip }, async (t) => {
  const server = await startRedis();
  t.after(server.close);
  await server.stop();
  const gateway = await gatewayFor(
    t,
    `config: { adminAddr: "127.0.0.1:0", store: { redis: "${server.url.replace("//", "//user:hidden-word@")}", timeout: 300ms } }\ngateways: { default: { port: 0 } }\nroutes: [{}]\n`,
  );
  assert.match(await gateway.logged("Redis is not available"), /address=redis:\/\/127/);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /^gateway_store_up\{kind="redis"\} 0$/m);
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.ok(!dump.includes("hidden-word") && !gateway.log().join("\n").includes("hidden-word"));
});
