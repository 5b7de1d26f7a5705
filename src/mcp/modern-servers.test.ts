/**
 * Which era a server is spoken to for modern clients: silent, brittle and slow ones, several at once, and shared ones.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { fixturePath, stdioFixture } from "../../test/support/mcp/fixture.ts";
import { modernCall, modernPost, modernStream } from "../../test/support/mcp/modern-client.ts";
import { startScripted } from "../../test/support/mcp/scripted-server.ts";
import { serveMcp } from "../../test/support/mcp/serve-backend.ts";

for (const [flag, name, waitMs] of [
  ["--mute", "is silent about", 5_000],
  ["--brittle", "exits over", 0],
] as const) {
  test(`a legacy server that ${name} what it does not know is spoken to in its own era`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "gateway-modern-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const asked = join(folder, "asked");
    const clock = fakeClock();
    const stdio = stdioFixture("odd-server", flag, `--asked=${asked}`);
    const odd = await serveMcp({ targets: [{ name: "odd", stdio }] }, { clock });
    let isOver = false;
    const calling = modernCall(odd.url, "echo", { message: "found" }).finally(() => {
      isOver = true;
    });
    await eventually("it was asked", () => existsSync(asked));
    await clock.advance(waitMs);
    await eventually("the call is over", async () => {
      await clock.advance(10);
      return isOver;
    });
    assert.equal(await calling, "found");
    // From now on it is known.
    odd.attributes = { jwt: { iss: "i", sub: "other" } };
    assert.equal(await modernCall(odd.url, "echo", { message: "at once" }), "at once");
    await odd.close();
  });
}

test("a server of both eras that starts slowly is not restarted and gets no legacy handshake", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-modern-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const gate = join(folder, "go");
  const received = join(folder, "received");
  const script = `echo started >> '${received}'; while [ ! -e '${gate}' ]; do sleep 0.05; done; tee -a '${received}' | '${process.execPath}' '${fixturePath("conformance-server")}' stdio`;
  const clock = fakeClock();
  const slow = await serveMcp({ targets: [{ name: "slow", stdio: { cmd: "sh", args: ["-c", script] } }] }, { clock });
  t.after(() => slow.close());
  const calling = modernCall(slow.url, "test_simple_text");
  await eventually("it is being started", () => slow.hub.children === 1);
  await clock.advance(29_999);
  writeFileSync(gate, "");
  assert.equal(await calling, "This is a simple text response for testing.");
  assert.equal(slow.hub.targets[0]?.speaks2026, true);
  const lines = readFileSync(received, "utf8").trim().split("\n");
  const messages = lines.filter((line) => line !== "started").map((line) => JSON.parse(line).method);
  assert.deepEqual(messages.slice(0, 2), ["server/discover", "ping"]);
  assert.ok(!messages.includes("initialize"));
  assert.equal(lines.filter((line) => line === "started").length, 1);
});

test("a modern server that is unavailable at first is probed again", async (t) => {
  const unavailable = [{ status: 503 }];
  const steps = { "server/discover": [unavailable], initialize: [unavailable, unavailable] };
  const late = await startScripted("http", { name: "late", era: "modern", steps });
  t.after(() => late.close());
  const several = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server") }, late.target] });
  t.after(() => several.close());
  assert.equal(await modernCall(several.url, "odd_echo", { message: "x" }), "x");
  assert.equal(await modernCall(several.url, "late_echo"), "echo of late");
});

test("several servers look like one to modern clients too", async () => {
  const several = await serveMcp({
    // A list waits for both, however slowly they start.
    failureMode: "failClosed",
    targets: [
      { name: "old", stdio: stdioFixture("odd-server", "--name=old") },
      { name: "new", stdio: { cmd: process.execPath, args: [fixturePath("conformance-server"), "stdio"] } },
    ],
  });
  const { message } = await modernPost(several.url, "server/discover");
  assert.equal(message.result._meta["io.modelcontextprotocol/serverInfo"].name, "gateway");
  assert.ok(message.result.capabilities.tools);
  const list = (await modernPost(several.url, "tools/list")).message.result;
  assert.equal(list.resultType, "complete");
  assert.ok(list.tools.some((tool: { name: string }) => tool.name === "new_test_simple_text"));
  assert.equal(await modernCall(several.url, "old_echo", { message: "x" }), "x");
  assert.equal(await modernCall(several.url, "new_test_simple_text"), "This is a simple text response for testing.");
  const asked = await modernPost(
    several.url,
    "tools/call",
    { name: "new_test_input_required_result_elicitation" },
    { capabilities: { elicitation: {} } },
  );
  assert.equal(asked.message.result.resultType, "input_required");
  const stream = await modernStream(
    several.url,
    "subscriptions/listen",
    { notifications: { toolsListChanged: true, resourceSubscriptions: ["old+x://1"] } },
    { id: 5 },
  );
  const { message: ack } = await stream.next();
  assert.deepEqual(ack.params.notifications, { toolsListChanged: true, resourceSubscriptions: ["old+x://1"] });
  await modernCall(several.url, "old_notify", { method: "notifications/resources/updated", params: { uri: "x://1" } });
  assert.deepEqual((await stream.next()).message.params, {
    _meta: { "io.modelcontextprotocol/subscriptionId": 5 },
    uri: "old+x://1",
  });
  await modernCall(several.url, "new_test_trigger_tool_change");
  assert.equal((await stream.next()).message.method, "notifications/tools/list_changed");
  stream.close();
  await several.close();
});

test("a shared process serves modern clients of any identity", async () => {
  const shared = await serveMcp({ targets: [{ name: "odd", shared: true, stdio: stdioFixture("odd-server") }] });
  const pids = new Set<number>();
  for (const sub of ["a", "b"]) {
    shared.attributes = { jwt: { iss: "i", sub } };
    pids.add(JSON.parse(await modernCall(shared.url, "state")).pid);
  }
  assert.equal(pids.size, 1);
  await shared.close();
});
