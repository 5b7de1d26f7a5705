/** Sessions whose clients went without a word: their processes are stopped, and come back with them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

const odd = { name: "odd", stdio: stdioFixture("odd-server") };

async function open(
  t: { after(done: () => unknown): void },
  settings: object = {},
): Promise<{ served: ServedBackend; client: RawClient; clock: FakeClock }> {
  const clock = fakeClock();
  const served = await serveMcp({ targets: [odd], ...settings }, { clock });
  t.after(() => served.close());
  const client = rawClient(served.url);
  await client.initialize();
  await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
  return { served, client, clock };
}

async function state(client: RawClient) {
  return JSON.parse((await client.call("state")).result.content[0].text);
}

/** Opens the general stream and closes it, as a client does that is closed without DELETE. */
async function listenAndLeave(served: ServedBackend, client: RawClient): Promise<void> {
  const stream = await client.listen();
  stream.close();
  await stream.ended;
  await eventually("nobody listens", () => served.tasks.report()[0]?.children?.[0]?.detail?.listening === false);
}

test("a session whose stream closed is parked after a minute and continues with the next request", async (t) => {
  const { served, client, clock } = await open(t);
  const before = await state(client);
  await client.request("logging/setLevel", { level: "warning" });
  await listenAndLeave(served, client);
  await clock.advance(55_000);
  assert.equal(served.hub.children, 1);
  await clock.advance(7_000);
  await eventually("its server is gone", () => served.hub.children === 0);
  assert.equal(served.hub.sessions.size, 1, "the session itself lives on");
  const after = await state(client);
  assert.notEqual(after.pid, before.pid);
  assert.equal(after.initializedCount, 1);
  assert.equal(after.logLevel, "warning");
  assert.equal(served.hub.children, 1);
});

test("a client that listens again has its server back without asking for anything", async (t) => {
  const { served, client, clock } = await open(t);
  await listenAndLeave(served, client);
  await clock.advance(62_000);
  await eventually("its server is gone", () => served.hub.children === 0);
  const stream = await client.listen();
  await eventually("its server is back", () => served.hub.children === 1);
  stream.close();
});

for (const [name, settings, prepare] of [
  ["a client that never listened may only be thinking", {}, () => Promise.resolve()],
  ["0s turns it off", { parkAfter: "0s" }, listenAndLeave],
  [
    "a client that listens is there",
    {},
    async (_served: ServedBackend, client: RawClient) => void (await client.listen()),
  ],
  ["a shared server is everybody's", { targets: [{ ...odd, shared: true }] }, listenAndLeave],
] as const) {
  test(`not parked: ${name}`, async (t) => {
    const { served, client, clock } = await open(t, settings);
    const { pid } = await state(client);
    await prepare(served, client);
    await clock.advance(120_000);
    assert.equal(served.hub.children, 1);
    assert.equal((await state(client)).pid, pid);
  });
}

test("not parked: a call is under way", async (t) => {
  const { served, client, clock } = await open(t);
  const running = client.stream({ jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "silent" } });
  await listenAndLeave(served, client);
  await clock.advance(120_000);
  assert.equal(served.hub.children, 1);
  (await running).close();
});

test("a parked session still ends when it has been idle for its time", async (t) => {
  const { served, client, clock } = await open(t);
  await listenAndLeave(served, client);
  await clock.advance(62_000);
  await eventually("its server is gone", () => served.hub.children === 0);
  await clock.advance(30 * 60_000);
  assert.equal(served.hub.sessions.size, 0);
  assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
});
