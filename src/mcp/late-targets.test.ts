/** One target is slow: sessions open without it after a few seconds, and hear of it when it is there (`failOpen`). */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type FakeClock, fakeClock } from "../../test/support/fake-clock.ts";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { modernPost, modernStream } from "../../test/support/mcp/modern-client.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";
import { OPEN_WAIT_MS } from "./aggregation/aggregate-router.ts";

interface Served extends ServedBackend {
  readonly clock: FakeClock;
  /** A file that exists once the fast target has answered `initialize`. */
  readonly opened: string;
  /** Lets the slow target start. */
  release(): void;
}

async function serve(t: TestContext, settings: object = {}): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "late-targets-"));
  const gate = join(folder, "go");
  const { cmd, args } = stdioFixture("odd-server", "--name=slow");
  const script = `while [ ! -e '${gate}' ]; do sleep 0.05; done; exec '${cmd}' ${args.map((one) => `'${one}'`).join(" ")}`;
  const opened = join(folder, "opened");
  const clock = fakeClock();
  const targets = [
    { name: "fast", stdio: stdioFixture("odd-server", "--name=fast", `--opened=${opened}`) },
    { name: "slow", stdio: { cmd: "sh", args: ["-c", script] } },
  ];
  const served = await serveMcp({ targets, ...settings }, { clock });
  t.after(async () => {
    // What waits in its loop would be ended by a clock that nobody advances any more.
    writeFileSync(gate, "");
    await served.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return Object.assign(served, { clock, opened, release: () => writeFileSync(gate, "") });
}

/** Lets the time pass that a session waits for a slow target, and no more. */
async function without<T>(served: Served, promise: Promise<T>): Promise<T> {
  await eventually("both are being started", () => served.hub.children === 2);
  await served.clock.advance(OPEN_WAIT_MS);
  return promise;
}

const toolNames = async (client: RawClient): Promise<string[]> =>
  (await client.request("tools/list")).result.tools.map(({ name }: { name: string }) => name.split("_")[0]);

test("initialize and lists go on without it, and list_changed comes with it", async (t) => {
  const served = await serve(t);
  const client = rawClient(served.url);
  const opened = await without(served, client.initialize());
  assert.match(opened.message.result.instructions, /\[slow\]\nNot available: is still starting/);
  for (const kind of ["tools", "prompts", "resources"])
    assert.equal(opened.message.result.capabilities[kind].listChanged, true, kind);
  await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
  assert.deepEqual([...new Set(await toolNames(client))], ["fast"]);
  // A call can be answered by nobody else: it waits.
  const called = client.call("slow_echo", { message: "at last" });
  let isLeft = false;
  const left = { jsonrpc: "2.0", id: "left", method: "tools/call", params: { name: "slow_state" } };
  void client.post(left).then(() => {
    isLeft = true;
  });
  await eventually("cancelled", async () => {
    await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "left" } });
    return isLeft;
  });
  const stream = await client.listen();
  served.release();
  await stream.next((message) => message.method === "notifications/tools/list_changed");
  assert.deepEqual([...new Set(await toolNames(client))], ["fast", "slow"]);
  const { result } = await client.call("slow_state");
  const { initializedCount, counter } = JSON.parse(result.content[0].text);
  assert.equal(initializedCount, 1, "it heard of initialized, too");
  assert.equal(counter, 1, "a call that was cancelled meanwhile never came");
  assert.equal((await called).result.content[0].text, "at last");
  stream.close();
});

test("without prefixes its names are unknown until it is there", async (t) => {
  const served = await serve(t, { prefixMode: "never" });
  const client = rawClient(served.url);
  await without(served, client.initialize());
  assert.match((await client.call("nonsense")).error.message, /Unknown tool/);
  assert.equal((await client.call("echo", { message: "x" })).result.content[0].text, "x");
});

test("a modern client is served too, and its subscription gets the list change", async (t) => {
  const served = await serve(t);
  const listed = await without(served, modernPost(served.url, "tools/list"));
  assert.ok(listed.message.result.tools.every(({ name }: { name: string }) => name.startsWith("fast_")));
  const stream = await modernStream(served.url, "subscriptions/listen", { notifications: { toolsListChanged: true } });
  await stream.next((message) => message.method === "notifications/subscriptions/acknowledged");
  served.release();
  await stream.next((message) => message.method === "notifications/tools/list_changed");
  const again = await modernPost(served.url, "tools/list");
  assert.ok(again.message.result.tools.some(({ name }: { name: string }) => name === "slow_echo"));
  stream.close();
});

test("failClosed waits for all", async (t) => {
  const served = await serve(t, { failureMode: "failClosed" });
  let isOpen = false;
  const opening = rawClient(served.url)
    .initialize()
    .then((answer) => {
      isOpen = true;
      return answer;
    });
  await eventually("the fast one has answered", () => existsSync(served.opened));
  // Its answer is in the pipe: a request of another kind comes back only after the gateway has read it.
  await (await fetch(served.url, { method: "PUT" })).text();
  await served.clock.advance(3 * OPEN_WAIT_MS);
  assert.equal(isOpen, false);
  served.release();
  assert.equal((await opening).message.result.serverInfo.name, "gateway");
});
