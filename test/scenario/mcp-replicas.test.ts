/**
 * Two replicas and one Redis behind a load balancer that sends each message of a client anywhere: every message that a
 * client may send, of both eras, at the replica that did not open the session, before and after that one holds it too.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { note, type Pair, type Replicas, replicasFor, sessionAt, stateAt } from "../support/mcp/replicas.ts";
import { gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis } from "../support/store/redis-server.ts";

const skip = skipWithoutRedis;
const URI = "test://odd/a";

interface Row {
  readonly message: string;
  run(pair: Pair): Promise<void>;
}

/** Requests that only want an answer. */
const ANSWERED: readonly (readonly [method: string, params: object])[] = [
  ["ping", {}],
  ["tools/list", {}],
  ["tools/call", { name: "echo", arguments: { message: "hi" } }],
  ["prompts/list", {}],
  ["prompts/get", { name: "greeting" }],
  ["resources/list", {}],
  ["resources/templates/list", {}],
  ["resources/read", { uri: URI }],
  ["completion/complete", { ref: { type: "ref/prompt", name: "greeting" }, argument: { name: "x", value: "" } }],
  ["logging/setLevel", { level: "error" }],
  ["resources/subscribe", { uri: URI }],
  ["resources/unsubscribe", { uri: URI }],
];

const LEGACY: readonly Row[] = [
  ...ANSWERED.map(([method, params]) => ({
    message: `request ${method}`,
    run: async ({ there }: Pair) => assert.ok((await there.request(method, params)).result, method),
  })),
  {
    message: "request initialize (a second one is refused)",
    run: async ({ there }) => {
      const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
      const answer = await there.post({ jsonrpc: "2.0", id: 1, method: "initialize", params });
      assert.notEqual(answer.status, 200);
    },
  },
  {
    message: "logging/setLevel holds at both",
    run: async ({ here, there }) => {
      await here.request("logging/setLevel", { level: "error" });
      assert.equal((await stateAt(there)).logLevel, "error");
      await there.request("logging/setLevel", { level: "debug" });
      assert.equal((await stateAt(here)).logLevel, "debug");
      assert.equal((await stateAt(there)).logLevel, "debug");
    },
  },
  {
    message: "resources/subscribe and unsubscribe hold at both",
    run: async ({ here, there }) => {
      await here.request("resources/subscribe", { uri: URI });
      await here.request("resources/subscribe", { uri: "test://odd/b" });
      assert.deepEqual((await stateAt(there)).subscribed, [URI, "test://odd/b"]);
      await there.request("resources/unsubscribe", { uri: URI });
      assert.deepEqual((await stateAt(here)).subscribed, ["test://odd/b"]);
    },
  },
  {
    message: "notifications/cancelled reaches the call",
    run: async ({ here, there }) => {
      const call = { jsonrpc: "2.0", id: "slow one", method: "tools/call", params: { name: "silent", arguments: {} } };
      const stream = await here.stream(call);
      // Somebody else's number, and one that was never given, cancel nothing.
      await there.post(note("notifications/cancelled", { requestId: "another" }));
      assert.equal((await there.post(note("notifications/cancelled", { requestId: "slow one" }))).status, 202);
      await stream.ended;
      assert.equal(stream.events.filter(({ data }) => data.includes("result")).length, 0);
      assert.equal((await stateAt(here)).cancelled.length, 1);
    },
  },
  ...["notifications/progress", "notifications/roots/list_changed", "notifications/custom"].map((method) => ({
    message: `${method} reaches the servers of both`,
    run: async ({ here, there }: Pair) => {
      const params = method.endsWith("progress") ? { progressToken: 7, progress: 1 } : {};
      assert.equal((await there.post(note(method, params))).status, 202);
      await eventually(method, async () => (await stateAt(here)).seen.includes(method));
    },
  })),
  {
    message: "DELETE ends it at both, at once",
    run: async ({ here, there }) => {
      assert.equal(await there.delete(), 204);
      await eventually("404", async () => (await here.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status === 404);
      assert.equal((await there.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
    },
  },
  {
    message: "GET there hears what servers here say, and the other way round",
    run: async ({ here, there }) => {
      for (const [listener, speaker] of [
        [there, here],
        [here, there],
      ] as const) {
        const stream = await listener.listen();
        await speaker.call("notify", { method: "notifications/tools/list_changed" });
        const { message } = await stream.next((one) => one.method !== undefined);
        assert.equal(message.method, "notifications/tools/list_changed");
        stream.close();
        await stream.ended.catch(() => undefined);
      }
    },
  },
  {
    message: "GET that comes late gets what nobody has heard",
    run: async ({ here, there }) => {
      await here.call("notify", { method: "notifications/tools/list_changed", afterMs: 0 });
      await eventually("sent", async () => (await stateAt(here)).counter > 0);
      const stream = await there.listen();
      assert.equal(
        (await stream.next((one) => one.method !== undefined)).message.method,
        "notifications/tools/list_changed",
      );
      stream.close();
    },
  },
];

for (const isHeld of [false, true])
  test(`2025, at the replica that ${isHeld ? "also holds" : "does not hold"} the session`, { skip }, async (t) => {
    const replicas = await replicasFor(t);
    for (const { message, run } of LEGACY) await t.test(message, async () => run(await sessionAt(replicas, isHeld)));
  });

test("2025: the client's word that it is initialized comes to the other replica", { skip }, async (t) => {
  const { urls } = await replicasFor(t);
  const [here, there] = urls.map((url) => rawClient(url)) as [RawClient, RawClient];
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const answer = await here.post({ jsonrpc: "2.0", id: 1, method: "initialize", params });
  there.sessionId = here.sessionId = answer.headers.get("mcp-session-id") ?? "";
  assert.equal((await there.post(note("notifications/initialized"))).status, 202);
  assert.equal((await stateAt(here)).initializedCount, 1);
  assert.equal((await stateAt(there)).initializedCount, 1);
  await here.post(note("notifications/initialized"));
  assert.equal((await stateAt(there)).initializedCount, 1);
});

test("2025: settings are in the names of the client, with several servers", { skip }, async (t) => {
  const { here, there } = await sessionAt(await replicasFor(t, [oddTarget("a"), oddTarget("b")]), false);
  await here.request("resources/subscribe", { uri: "b+test://b/a" });
  await here.request("logging/setLevel", { level: "alert" });
  assert.deepEqual((await stateAt(there, "b_")).subscribed, ["test://b/a"]);
  assert.deepEqual((await stateAt(there, "a_")).subscribed, []);
  assert.equal((await stateAt(there, "a_")).logLevel, "alert");
});

test("2025: what is set is sealed, and a poisoned record is none", { skip }, async (t) => {
  const replicas = await replicasFor(t);
  const { here, there } = await sessionAt(replicas, false);
  assert.ok((await here.request("resources/subscribe", { uri: "test://odd/secret-place" })).result);
  assert.deepEqual((await stateAt(there)).subscribed, ["test://odd/secret-place"]);
  const { Redis } = await import("ioredis");
  const spy = new Redis(replicas.redis.url);
  t.after(() => spy.disconnect());
  const all: string[] = [];
  for (const key of await spy.keys("*")) all.push(key, (await spy.get(key)) ?? "");
  assert.doesNotMatch(all.join("\n"), /secret-place/);
  for (const key of await spy.keys("*mcp-settings*")) await spy.set(key, "nonsense");
  const fresh = rawClient((await gatewayFor(t, await configOf(replicas))).url().concat("/mcp"));
  fresh.sessionId = here.sessionId;
  assert.deepEqual((await stateAt(fresh)).subscribed, []);
});

async function configOf({ redis }: Replicas): Promise<string> {
  const { config, ...rest } = JSON.parse(mcpConfig([oddTarget()]));
  return JSON.stringify({ ...rest, config: { ...config, adminAddr: "off", store: { redis: redis.url } } });
}

test("2025: another user's session id moves nothing at either replica", { skip }, async (t) => {
  const keys = { apiKey: { keys: [{ key: "key-of-alice-1" }, { key: "key-of-carol-2" }] } };
  const { urls } = await replicasFor(t, [oddTarget()], { policies: keys });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const [here, there] = urls.map((url) => rawClient(url)) as [RawClient, RawClient];
  const alice = as("key-of-alice-1");
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const opened = await here.post({ jsonrpc: "2.0", id: 1, method: "initialize", params }, alice);
  there.sessionId = here.sessionId = opened.headers.get("mcp-session-id") ?? "";
  const call = (name: string, id: string) => ({
    jsonrpc: "2.0",
    id,
    method: "tools/call",
    params: { name, arguments: {} },
  });
  const stream = await here.stream(call("silent", "mine"), alice);
  for (const client of [here, there])
    for (const body of [
      note("notifications/cancelled", { requestId: "mine" }),
      note("notifications/roots/list_changed"),
      { jsonrpc: "2.0", id: 1, method: "logging/setLevel", params: { level: "error" } },
    ])
      assert.equal((await client.post(body, as("key-of-carol-2"))).status, 404);
  const state = JSON.parse((await here.post(call("state", "s"), alice)).message.result.content[0].text);
  assert.deepEqual(
    [state.cancelled, state.seen.includes("notifications/roots/list_changed"), state.logLevel],
    [[], false, ""],
  );
  await there.post(note("notifications/cancelled", { requestId: "mine" }), alice);
  await stream.ended;
});

test("2025: without Redis for a while requests go on, and with it again messages arrive", { skip }, async (t) => {
  const replicas = await replicasFor(t);
  const { here, there } = await sessionAt(replicas, true);
  await replicas.redis.stop();
  assert.ok((await here.request("logging/setLevel", { level: "error" })).result);
  assert.equal((await there.post(note("notifications/roots/list_changed"))).status, 202);
  assert.ok((await there.request("tools/list")).result);
  await replicas.redis.start();
  await eventually("told again", async () => {
    await there.post(note("notifications/back"));
    return (await stateAt(here)).seen.includes("notifications/back");
  });
});
