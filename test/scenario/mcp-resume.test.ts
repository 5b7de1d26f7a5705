/**
 * Sessions of the legacy era that go on in another process: after a restart, and at another replica. Whoever has no right
 * to a session gets 404 there as well.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { folderFor, repeated, restart, SESSION_KEY, type Setup, yaml } from "../support/mcp/resume.ts";
import { gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";

test("100 SDK clients at work repeat what failed during a restart, and their sessions go on", async (t) => {
  const remote = await startRemote("http");
  t.after(() => remote.close());
  const setup: Setup = {
    config: { store: { folder: folderFor(t) } },
    targets: [{ name: "remote", mcp: { url: remote.url } }],
  };
  let gateway = await startGateway(yaml(setup));
  const url = new URL(`${gateway.url()}/mcp`);
  const clients = await Promise.all(
    Array.from({ length: 100 }, async () => {
      const client = new Client({ name: "sdk", version: "1" }, { capabilities: { roots: {} } });
      const transport = new StreamableHTTPClientTransport(url, {
        reconnectionOptions: {
          initialReconnectionDelay: 50,
          maxReconnectionDelay: 200,
          reconnectionDelayGrowFactor: 1,
          maxRetries: 200,
        },
      });
      await client.connect(transport as Parameters<Client["connect"]>[0]);
      t.after(() => client.close());
      return { client, id: transport.sessionId, transport };
    }),
  );
  let repeats = 0;
  let calls = 0;
  let isRestarted = false;
  /** Calls on and on, over the restart; what failed is repeated, and nothing else is done about it. */
  const work = clients.map(async ({ client, id, transport }, i) => {
    for (let round = 0, isOver = false; !isOver; round++) {
      const message = `${i}/${round}`;
      const isAfter = isRestarted;
      await eventually(`${message} is answered`, async () => {
        try {
          const { content } = await client.callTool({ name: "echo", arguments: { message } });
          assert.deepEqual(content, [{ type: "text", text: message }]);
          return true;
        } catch (error) {
          if (error instanceof assert.AssertionError) throw error;
          repeats += 1;
          return false;
        }
      });
      assert.equal(transport.sessionId, id);
      calls += 1;
      isOver = isAfter;
    }
  });
  await eventually("all are at work", () => calls >= clients.length);
  gateway = await restart(t, gateway, setup);
  isRestarted = true;
  await Promise.all(work);
  t.diagnostic(`${calls} calls, ${repeats} repeated`);
});

test("a stdio server is started again and told what the client said at first", async (t) => {
  const setup: Setup = { config: { store: { folder: folderFor(t) } } };
  const gateway = await startGateway(yaml(setup));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize({ capabilities: { sampling: {} }, clientInfo: { name: "kept-name", version: "7" } });
  const before = JSON.parse((await client.call("state")).result.content[0].text);
  await restart(t, gateway, setup);
  const [one, other] = await repeated(() => Promise.all([client.call("state"), client.call("state")]));
  const after = JSON.parse(one.result.content[0].text);
  assert.notEqual(after.pid, before.pid);
  assert.equal(JSON.parse(other.result.content[0].text).pid, after.pid, "requests that come at once share the session");
  assert.equal(after.clientInfo?.name ?? "kept-name", "kept-name");
  assert.equal(await client.delete(), 204);
  assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
});

test("an answer that broke off and is lost is told, so that nobody waits for it", async (t) => {
  const setup: Setup = { config: { store: { folder: folderFor(t) } } };
  const gateway = await startGateway(yaml(setup));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const lastIds: [id: unknown, lastEventId: string][] = [];
  for (const id of [7, 'a "quoted" one']) {
    const call = { jsonrpc: "2.0", id, method: "tools/call", params: { name: "silent", arguments: {} } };
    const stream = await client.stream(call);
    // The first event has an id and no message.
    await eventually("the stream is open", () => stream.events.length > 0);
    lastIds.push([id, stream.events[0]?.id ?? ""]);
    stream.close();
  }
  await restart(t, gateway, setup);
  for (const [id, lastId] of lastIds) {
    const lost = await repeated(() => client.listen({ "last-event-id": lastId }));
    const { message } = await lost.next((one) => one.error);
    assert.equal(message.id, id);
    assert.match(message.error.message, /send the request again/);
    await lost.ended;
  }
  assert.ok((await client.request("tools/list")).result);
});

test("two replicas with one key: every request may go to either", async (t) => {
  const setup: Setup = { config: { sessionKey: SESSION_KEY }, targets: [oddTarget("a"), oddTarget("b")] };
  const replicas = [await gatewayFor(t, yaml(setup)), await gatewayFor(t, yaml(setup))];
  const [first, second] = replicas.map((gateway) => rawClient(`${gateway.url()}/mcp`));
  assert.ok(first && second);
  await first.initialize();
  second.sessionId = first.sessionId;
  for (let round = 0; round < 3; round++) {
    assert.equal((await second.request("tools/list")).result.tools.length, 26);
    assert.equal((await first.request("tools/list")).result.tools.length, 26);
  }
  const stream = await second.listen();
  assert.equal(stream.status, 200);
  stream.close();
});

test("replicas with Redis: ended at one, over at the other that does not hold it", {
  skip: skipWithoutRedis,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const setup: Setup = { config: { store: { redis: redis.url } } };
  const replicas = [await gatewayFor(t, yaml(setup)), await gatewayFor(t, yaml(setup))];
  const [first, second] = replicas.map((gateway) => rawClient(`${gateway.url()}/mcp`));
  assert.ok(first && second);
  await first.initialize();
  second.sessionId = first.sessionId;
  assert.ok((await second.request("tools/list")).result);
  const late = rawClient(first.url);
  await late.initialize();
  assert.equal(await late.delete(), 204);
  second.sessionId = late.sessionId;
  assert.equal((await second.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
  // A DELETE may also come to a replica that never saw the session.
  late.sessionId = undefined;
  await late.initialize();
  second.sessionId = late.sessionId;
  assert.equal(await second.delete(), 204);
  assert.equal(await second.delete(), 404);
  // While Redis is away, the signature alone counts.
  late.sessionId = undefined;
  await late.initialize();
  await redis.stop();
  second.sessionId = late.sessionId;
  assert.ok((await second.request("tools/list")).result);
});

for (const isHeld of [false, true])
  test(`replicas with Redis: an answer reaches the one that asked${isHeld ? ", also if both hold the session" : ""}`, {
    skip: skipWithoutRedis,
  }, async (t) => {
    const redis = await startRedis();
    t.after(redis.close);
    const setup: Setup = { config: { store: { redis: redis.url } } };
    const replicas = [await gatewayFor(t, yaml(setup)), await gatewayFor(t, yaml(setup))];
    const [first, second] = replicas.map((gateway) => rawClient(`${gateway.url()}/mcp`));
    assert.ok(first && second);
    await first.initialize({ capabilities: { sampling: {} } });
    second.sessionId = first.sessionId;
    if (isHeld) assert.ok((await second.request("tools/list")).result);
    const call = { jsonrpc: "2.0", id: "call", method: "tools/call", params: { name: "ask", arguments: {} } };
    const streams = [await first.stream(call), ...(isHeld ? [await second.stream(call)] : [])];
    const asked: number[] = [];
    for (const stream of streams)
      asked.push((await stream.next((message) => message.method === "sampling/createMessage")).message.id);
    assert.equal(new Set(asked).size, streams.length, "questions of two replicas have different ids");
    // What nobody asked is accepted and dropped, wherever it arrives.
    assert.equal((await second.post({ jsonrpc: "2.0", id: 1, result: { content: "nobody asked" } })).status, 202);
    for (const id of asked) {
      const answer = await second.post({ jsonrpc: "2.0", id, result: { content: `secret answer to ${id}` } });
      assert.equal(answer.status, 202);
    }
    for (const [i, stream] of streams.entries()) {
      const { message } = await stream.next((one) => one.id === "call");
      assert.match(JSON.stringify(message.result), new RegExp(`secret answer to ${asked[i]}`));
    }
  });

test("an id counts only for its owner, its backend, its key and as it was given", async (t) => {
  const keys = { apiKey: { keys: [{ key: "key-of-alice-1" }, { key: "key-of-carol-2" }] } };
  const setup: Setup = { config: { sessionKey: SESSION_KEY }, route: { policies: keys } };
  const first = await gatewayFor(t, yaml(setup));
  const second = await gatewayFor(t, yaml(setup));
  const stranger = await gatewayFor(t, yaml({ ...setup, config: { sessionKey: `${SESSION_KEY}, another one` } }));
  const own = await gatewayFor(t, yaml({ ...setup, config: {} }));
  const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const opened = await rawClient(`${first.url()}/mcp`).post(
    {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    },
    as("key-of-alice-1"),
  );
  const id = opened.headers.get("mcp-session-id") ?? "";
  const status = async (gateway: TestGateway, sessionId: string, key = "key-of-alice-1", path = "/mcp") => {
    const client = rawClient(`${gateway.url()}${path}`);
    client.sessionId = sessionId;
    return (await client.post(ping, as(key))).status;
  };
  assert.equal(await status(second, id, "key-of-carol-2"), 404, "another owner");
  assert.equal(await status(first, id, "key-of-carol-2"), 404, "another owner where it is held");
  assert.equal(await status(second, id, "key-of-alice-1", "/other"), 404, "another backend");
  assert.equal(await status(stranger, id), 404, "another key");
  assert.equal(await status(own, id), 404, "a key of its own");
  const [name = "", payload = "", signature = ""] = id.split(".");
  const flipped = `${payload.slice(0, -1)}${payload.endsWith("A") ? "B" : "A"}`;
  for (const forged of [
    `${name}.${flipped}.${signature}`,
    `${"0".repeat(32)}.${payload}.${signature}`,
    `${name}.${payload}.${signature.slice(0, -1)}`,
    `${name}.${payload}.${"A".repeat(22)}`,
    `${name}.${payload}.`,
    `${name}.${payload}`,
    name,
    ".",
  ])
    assert.equal(await status(second, forged), 404, forged);
  assert.equal(await status(second, id), 200, "the id itself");
});

test("parameters that are too large for an id are kept in the store", async (t) => {
  const folder = folderFor(t);
  const setup: Setup = { config: { store: { folder } } };
  const gateway = await startGateway(yaml(setup));
  const client = rawClient(`${gateway.url()}/mcp`);
  const experimental = Object.fromEntries(
    Array.from({ length: 200 }, (_, i) => [`capability-${i}-${(i * 7919) % 1000}`, { level: (i * 31337) % 977 }]),
  );
  await client.initialize({ capabilities: { experimental } });
  assert.ok((client.sessionId?.length ?? 0) < 100, client.sessionId);
  await restart(t, gateway, setup);
  assert.ok((await repeated(() => client.request("tools/list"))).result);
});

test("a server that does not come up is an error of the request; the session is tried again", async (t) => {
  const setup: Setup = { config: { sessionKey: SESSION_KEY } };
  const gateway = await startGateway(yaml(setup));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const broken = await restart(t, gateway, { ...setup, targets: [{ name: "odd", stdio: { cmd: "/bin/false" } }] });
  const answer = await repeated(() => client.post({ jsonrpc: "2.0", id: 9, method: "tools/list" }));
  assert.equal(answer.status, 200);
  assert.equal(answer.message.id, 9);
  assert.match(answer.message.error.message, /target "odd"/);
  assert.equal(answer.headers.get("x-gateway-error"), "backend_unavailable");
  await restart(t, broken, setup);
  assert.ok((await repeated(() => client.request("tools/list"))).result);
});
