/** A reload leaves sessions and children alone whose definition did not change, and finishes what runs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall } from "../support/mcp/modern-client.ts";
import { isAlive } from "../support/mcp/processes.ts";
import { gatewayFor } from "../support/scenario.ts";

async function pidOf(client: RawClient, prefix = ""): Promise<number> {
  return JSON.parse((await client.call(`${prefix}state`)).result.content[0].text).pid;
}

async function opened(gateway: TestGateway): Promise<RawClient> {
  const client = rawClient(`${gateway.url()}/mcp`);
  assert.equal((await client.initialize()).status, 200);
  return client;
}

async function toolNames(client: RawClient): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | undefined;
  do {
    const params = cursor === undefined ? {} : { cursor };
    const { message } = await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list", params });
    for (const { name } of message.result.tools as { name: string }[]) names.push(name);
    cursor = message.result.nextCursor;
  } while (cursor !== undefined);
  return names;
}

async function tasksOf(gateway: TestGateway): Promise<string> {
  return (await (await fetch(`${gateway.adminUrl}/debug/tasks`)).text()).replaceAll(" ", "");
}

test("a session, its child and a call in flight survive a change of other settings", async () => {
  const gateway = await startGateway(mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const pid = await pidOf(client);
  const running = client.call("slow", { ms: 1500, message: "through" });
  assert.equal(await gateway.reload(mcpConfig([oddTarget()], { requestTimeout: "60s", maxSessions: 5 })), "loaded");
  assert.equal(await pidOf(client), pid);
  assert.equal((await running).result.content[0].text, "slow through");
  await gateway.close();
});

test("a second target: the session, its child and its call go on under the names it knows; new clients see both", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const client = await opened(gateway);
  const pid = await pidOf(client);
  const running = client.call("slow", { ms: 600, message: "through" });
  assert.equal(await gateway.reload(mcpConfig([oddTarget(), oddTarget("second")])), "loaded");
  assert.equal(await pidOf(client), pid);
  assert.equal((await running).result.content[0].text, "slow through");
  assert.equal(await pidOf(client), pid);
  const both = await toolNames(await opened(gateway));
  assert.ok(both.includes("odd_echo") && both.includes("second_echo"), both.join());
});

test("of two targets one is defined anew: the other keeps its child, the new one takes its place in the session", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget("a"), oddTarget("b")]));
  const client = await opened(gateway);
  const general = await client.listen();
  const [a, b] = [await pidOf(client, "a_"), await pidOf(client, "b_")];
  const running = client.call("b_slow", { ms: 600, message: "through" });
  await eventually("the call runs", async () => (await tasksOf(gateway)).includes('"pendingCalls":1'));
  assert.equal(await gateway.reload(mcpConfig([oddTarget("a"), oddTarget("b", "--page=1")])), "loaded");
  assert.equal((await general.next()).message.method, "notifications/tools/list_changed");
  assert.equal(await pidOf(client, "a_"), a);
  const renewed = await pidOf(client, "b_");
  assert.notEqual(renewed, b);
  assert.equal((await running).result.content[0].text, "slow through");
  await eventually("the old child is gone", () => !isAlive(b));
  assert.equal(await pidOf(client, "b_"), renewed);
});

test("a third target is part of a session that knows two, and one that goes is not", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget("a"), oddTarget("b")]));
  const client = await opened(gateway);
  const b = await pidOf(client, "b_");
  assert.equal(await gateway.reload(mcpConfig([oddTarget("a"), oddTarget("b"), oddTarget("c")])), "loaded");
  assert.ok((await toolNames(client)).includes("c_echo"));
  assert.equal((await client.call("c_echo", { message: "hi" })).result.content[0].text, "hi");
  assert.equal(await gateway.reload(mcpConfig([oddTarget("a"), oddTarget("c")])), "loaded");
  assert.ok(!(await toolNames(client)).some((name) => name.startsWith("b_")));
  assert.equal((await client.call("b_echo", { message: "hi" })).error.code, -32602);
  await eventually("the child of the target that went is gone", () => !isAlive(b));
});

test("the only target gets another environment: the session goes on with a new process", async (t) => {
  const target = oddTarget() as { name: string; stdio: object };
  const gateway = await gatewayFor(t, mcpConfig([target]));
  const client = await opened(gateway);
  const pid = await pidOf(client);
  const changed = { ...target, stdio: { ...target.stdio, env: { NEW: "1" } } };
  assert.equal(await gateway.reload(mcpConfig([changed])), "loaded");
  assert.notEqual(await pidOf(client), pid);
  await eventually("the old child is gone", () => !isAlive(pid));
});

for (const [name, after] of [
  ["another target", mcpConfig([oddTarget("other")])],
  ["another name of the route", mcpConfig([oddTarget()], {}, { name: "renamed" })],
] as const) {
  test(`${name}: a call in flight is finished, then the session and its child end`, async (t) => {
    const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
    const client = await opened(gateway);
    const pid = await pidOf(client);
    const running = client.call("slow", { ms: 800, message: "through" });
    await eventually("the call runs", async () => (await tasksOf(gateway)).includes('"pendingCalls":1'));
    assert.equal(await gateway.reload(after), "loaded");
    assert.equal((await running).result.content[0].text, "slow through");
    assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
    await eventually("the old child is gone", () => !isAlive(pid));
    await opened(gateway);
  });
}

test("a shared server that is defined anew: sessions move to the new process, the old one ends", async (t) => {
  const shared = (...flags: string[]): string =>
    mcpConfig([{ ...oddTarget("a", ...flags), shared: true }, oddTarget("b")]);
  const gateway = await gatewayFor(t, shared());
  const [one, two] = [await opened(gateway), await opened(gateway)];
  const pid = await pidOf(one, "a_");
  assert.equal(await pidOf(two, "a_"), pid);
  const running = one.call("a_slow", { ms: 600, message: "through" });
  await eventually("the call runs", async () => (await tasksOf(gateway)).includes('"pendingCalls":1'));
  assert.equal(await gateway.reload(shared("--page=1")), "loaded");
  const renewed = await pidOf(one, "a_");
  assert.notEqual(renewed, pid);
  assert.equal(await pidOf(two, "a_"), renewed);
  assert.equal((await running).result.content[0].text, "slow through");
  await eventually("the old child is gone", () => !isAlive(pid));
});

test("a modern client's call is finished by the old server, its next one meets the new", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const url = `${gateway.url()}/mcp`;
  const running = modernCall(url, "slow", { ms: 800, message: "through" });
  await eventually("the call runs", async () => (await tasksOf(gateway)).includes('"pendingCalls":1'));
  assert.equal(await gateway.reload(mcpConfig([oddTarget("odd", "--page=1")])), "loaded");
  assert.equal(await modernCall(url, "echo", { message: "new" }), "new");
  assert.equal(await running, "slow through");
});

test("a file that does not load leaves everything as it is", async () => {
  const gateway = await startGateway(mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const pid = await pidOf(client);
  assert.equal(await gateway.reload(mcpConfig([{ name: "x" }])), "refused");
  assert.equal(await pidOf(client), pid);
  await gateway.close();
});

test("calls go on without an error while targets come, change and go", async (t) => {
  const configuration = (round: number): string =>
    mcpConfig([oddTarget("a"), oddTarget("b", `--page=${round + 1}`), ...(round % 2 === 0 ? [] : [oddTarget("c")])]);
  const gateway = await gatewayFor(t, configuration(0));
  const clients = await Promise.all([opened(gateway), opened(gateway)]);
  const pid = await pidOf(clients[0] as RawClient, "a_");
  let isOver = false;
  let calls = [0, 0];
  const calling = clients.map(async (client, i) => {
    for (let number = 0; !isOver; number++) {
      const { result, error } = await client.call(`${i === 0 ? "a" : "b"}_echo`, { message: `call ${number}` });
      assert.equal(result?.content[0].text, `call ${number}`, JSON.stringify(error));
      calls = calls.map((count, client) => (client === i ? count + 1 : count));
    }
  });
  const ended = Promise.all(calling);
  for (let round = 1; round <= 4; round++) {
    assert.equal(await gateway.reload(configuration(round)), "loaded");
    const before = calls;
    const bothCalled = () => calls.every((count, i) => count > (before[i] ?? 0));
    await Promise.race([ended, eventually("both clients called after the reload", bothCalled)]);
  }
  isOver = true;
  await ended;
  assert.equal(await pidOf(clients[0] as RawClient, "a_"), pid);
});
