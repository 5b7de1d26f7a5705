/** One target is slow: sessions open without it after a few seconds, and hear of it when it is there (`failOpen`). */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type FakeClock, fakeClock } from "../../../test/support/fake-clock.ts";
import { type RawClient, rawClient } from "../../../test/support/mcp/client.ts";
import { stdioFixture } from "../../../test/support/mcp/fixture.ts";
import { modernPost, modernStream } from "../../../test/support/mcp/modern-client.ts";
import { type ServedBackend, serveMcp } from "../../../test/support/mcp/serve-backend.ts";

interface Served extends ServedBackend {
  readonly clock: FakeClock;
  /** Lets the slow target start. */
  release(): void;
}

async function serve(t: TestContext, settings: object = {}): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "late-targets-"));
  const gate = join(folder, "go");
  const { cmd, args } = stdioFixture("odd-server", "--name=slow");
  const script = `while [ ! -e '${gate}' ]; do sleep 0.05; done; exec '${cmd}' ${args.map((one) => `'${one}'`).join(" ")}`;
  const clock = fakeClock();
  const targets = [
    { name: "fast", stdio: stdioFixture("odd-server", "--name=fast") },
    { name: "slow", stdio: { cmd: "sh", args: ["-c", script] } },
  ];
  const served = await serveMcp({ targets, ...settings }, { clock });
  t.after(async () => {
    // What waits in its loop would be ended by a clock that nobody advances any more.
    writeFileSync(gate, "");
    await served.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return Object.assign(served, { clock, release: () => writeFileSync(gate, "") });
}

/** Lets time pass until the promise settles; never more than the limit, so that a wait for the slow target shows. */
async function within<T>(clock: FakeClock, limitMs: number, promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const settled = promise.finally(() => {
    isSettled = true;
  });
  for (let passedMs = 0; passedMs < limitMs && !isSettled; passedMs += 100) {
    await clock.advance(100);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.ok(isSettled, "it took too long");
  return settled;
}

const toolNames = async (client: RawClient): Promise<string[]> =>
  (await client.request("tools/list")).result.tools.map(({ name }: { name: string }) => name.split("_")[0]);

test("initialize and lists go on without it, and list_changed comes with it", async (t) => {
  const served = await serve(t);
  const client = rawClient(served.url);
  const opened = await within(served.clock, 6_000, client.initialize());
  assert.match(opened.message.result.instructions, /\[slow\]\nNot available: is still starting/);
  for (const kind of ["tools", "prompts", "resources"])
    assert.equal(opened.message.result.capabilities[kind].listChanged, true, kind);
  await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
  assert.deepEqual([...new Set(await toolNames(client))], ["fast"]);
  const refused = await client.call("slow_echo");
  assert.match(refused.error.message, /target "slow" is still starting/);
  const stream = await client.listen();
  served.release();
  await stream.next((message) => message.method === "notifications/tools/list_changed");
  assert.deepEqual([...new Set(await toolNames(client))], ["fast", "slow"]);
  const { result } = await client.call("slow_state");
  assert.equal(JSON.parse(result.content[0].text).initializedCount, 1, "it heard of initialized, too");
  stream.close();
});

test("without prefixes its names are unknown until it is there", async (t) => {
  const served = await serve(t, { prefixMode: "never" });
  const client = rawClient(served.url);
  await within(served.clock, 6_000, client.initialize());
  assert.match((await client.call("nonsense")).error.message, /Unknown tool/);
  assert.equal((await client.call("echo", { message: "x" })).result.content[0].text, "x");
});

test("a client of the modern era is served too, and its subscription hears of the change", async (t) => {
  const served = await serve(t);
  const listed = await within(served.clock, 6_000, modernPost(served.url, "tools/list"));
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
  for (let i = 0; i < 10; i++) {
    await served.clock.advance(1_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(isOpen, false);
  served.release();
  assert.equal((await opening).message.result.serverInfo.name, "gateway");
});
