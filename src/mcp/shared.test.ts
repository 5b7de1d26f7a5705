import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";

const SHARED = { targets: [{ name: "odd", shared: true, stdio: stdioFixture("odd-server") }] };

async function open(url: string, version = "2025-11-25") {
  const client = rawClient(url);
  client.version = version;
  return { client, answer: await client.initialize({ capabilities: { sampling: {} } }) };
}

test("sessions share one process, which gets no client capabilities", async () => {
  const served = await serveMcp(SHARED);
  const [a, b] = await Promise.all([open(served.url), open(served.url, "2025-03-26")]);
  assert.equal(served.hub.children, 1);
  assert.notEqual(a.client.sessionId, b.client.sessionId);
  assert.equal(a.answer.message.result.protocolVersion, "2025-11-25");
  assert.equal(b.answer.message.result.protocolVersion, "2025-03-26");
  assert.deepEqual(a.answer.message.result.capabilities.experimental.echoedCapabilities, {});
  const states = await Promise.all(
    [a, b].map(async ({ client }) => JSON.parse((await client.call("state")).result.content[0].text)),
  );
  assert.equal(states[0].pid, states[1].pid);
  await served.close();
});

test("two clients with equal ids and 500 calls each, in any order, get only their own responses [V9]", async () => {
  const served = await serveMcp(SHARED);
  const clients = await Promise.all(["a", "b"].map(async (name) => ({ name, ...(await open(served.url)) })));
  const crossed = await Promise.all(
    clients.map(async ({ name, client }) => {
      let wrong = 0;
      for (let batch = 0; batch < 10; batch++) {
        const answers = await Promise.all(
          Array.from({ length: 50 }, (_, i) => {
            const id = batch * 50 + i;
            return client.post({
              jsonrpc: "2.0",
              id,
              method: "tools/call",
              params: {
                name: "slow",
                arguments: { ms: (id * 7) % 13, message: `${name} ${id}` },
                _meta: { progressToken: id },
              },
            });
          }),
        );
        answers.forEach(({ messages }, i) => {
          const id = batch * 50 + i;
          const isOwn = messages.every((message) =>
            message.params
              ? message.params.progressToken === id
              : message.id === id && message.result.content[0].text === `slow ${name} ${id}`,
          );
          if (!isOwn || messages.length !== 4) wrong += 1;
        });
      }
      return wrong;
    }),
  );
  assert.deepEqual(crossed, [0, 0]);
  await served.close();
});

test("log messages go to no session, list changes to all, and updates to subscribers", async () => {
  const served = await serveMcp(SHARED);
  const [a, b] = await Promise.all([open(served.url), open(served.url)]);
  const [ga, gb] = await Promise.all([a.client.listen(), b.client.listen()]);
  const { messages } = await a.client.post({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "log" } });
  assert.equal(messages.length, 1);
  await a.client.request("resources/subscribe", { uri: "x://1" });
  await b.client.call("notify", { method: "notifications/resources/updated", params: { uri: "x://1" } });
  assert.equal((await ga.next()).message.params.uri, "x://1");
  await a.client.call("notify", { method: "notifications/tools/list_changed" });
  assert.equal((await gb.next()).message.method, "notifications/tools/list_changed");
  assert.equal(gb.events.filter((event) => event.data.includes("updated")).length, 0);
  await served.close();
});

test("requests of a shared server are rejected and reach no client", async () => {
  const served = await serveMcp(SHARED);
  const { client } = await open(served.url);
  const answer = await client.call("ask", { method: "sampling/createMessage" });
  assert.match(answer.result.content[0].text, /cannot ask/);
  await served.close();
});

test("one client's cancellation touches only its own call", async () => {
  const served = await serveMcp(SHARED);
  const [a, b] = await Promise.all([open(served.url), open(served.url)]);
  const running = b.client.post({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "slow", arguments: { ms: 60, message: "b" } },
  });
  const cancelled = await a.client.stream({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "silent" } });
  await a.client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
  await cancelled.ended;
  assert.equal((await running).message.result.content[0].text, "slow b");
  await served.close();
});

test("a crash fails the calls of all, and all go on with the new process", async () => {
  const served = await serveMcp(SHARED);
  const [a, b] = await Promise.all([open(served.url), open(served.url)]);
  const waiting = b.client.call("silent");
  await b.client.call("echo");
  assert.match((await a.client.call("crash")).error.message, /SIGKILL/);
  assert.match((await waiting).error.message, /SIGKILL/);
  for (const { client } of [a, b])
    assert.equal((await client.call("echo", { message: "again" })).result.content[0].text, "again");
  assert.equal(served.hub.children, 1);
  await served.close();
});

test("the process ends after the idle timeout of sessions", async () => {
  const clock = fakeClock();
  const served = await serveMcp({ ...SHARED, sessionIdleTtl: "10m" }, { clock });
  const { client } = await open(served.url);
  await client.delete();
  assert.equal(served.hub.children, 1);
  await clock.advance(11 * 60_000);
  await eventually("it is gone", () => served.hub.children === 0);
  const again = await open(served.url);
  assert.equal((await again.client.call("echo", { message: "x" })).result.content[0].text, "x");
  await served.close();
});
