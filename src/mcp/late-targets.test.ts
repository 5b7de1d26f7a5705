/**
 * One target starts slowly (`failOpen`). Sessions open without it after a few seconds, lists wait until `startWait`, and
 * clients are notified when it is up.
 */
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
import { type LogFields, type Logger, silentLogger } from "../record/log/logger.ts";
import { OPEN_WAIT_MS } from "./aggregation/aggregate-router.ts";

interface Served extends ServedBackend {
  readonly clock: FakeClock;
  /** The reasons with which the gateway left a target out of lists. */
  readonly leftOut: readonly string[];
  /** A file that exists once the fast target has answered `initialize`. */
  readonly opened: string;
  /** Lets the slow target start. */
  release(): void;
}

const START_WAIT_MS = 30_000;
const NOT_STARTED = "has not started within 30 s (startWait), so lists omit it until it is up";

/** `slow` is the command that the slow target runs after its release. */
async function serve(t: TestContext, settings: object = {}, slow?: string): Promise<Served> {
  const folder = mkdtempSync(join(tmpdir(), "late-targets-"));
  const gate = join(folder, "go");
  const { cmd, args } = stdioFixture("odd-server", "--name=slow");
  const script = `while [ ! -e '${gate}' ]; do sleep 0.05; done; ${slow ?? `exec '${cmd}' ${args.map((one) => `'${one}'`).join(" ")}`}`;
  const opened = join(folder, "opened");
  const clock = fakeClock();
  const targets = [
    { name: "fast", stdio: stdioFixture("odd-server", "--name=fast", `--opened=${opened}`) },
    { name: "slow", stdio: { cmd: "sh", args: ["-c", script] } },
  ];
  const leftOut: string[] = [];
  const logger: Logger = {
    ...silentLogger,
    warn: (message: string, fields?: LogFields) => {
      if (message === "MCP server left out of lists") leftOut.push(`${fields?.target} ${fields?.reason}`);
    },
    for: () => logger,
  };
  const served = await serveMcp({ targets, ...settings }, { clock, logger });
  t.after(async () => {
    // What waits in its loop would be ended by a clock that nobody advances any more.
    writeFileSync(gate, "");
    await served.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return Object.assign(served, { clock, leftOut, opened, release: () => writeFileSync(gate, "") });
}

/** Lets the time pass that a session waits for a slow target, and no more. */
async function without<T>(served: Served, promise: Promise<T>, children = 2): Promise<T> {
  await eventually("both are being started", () => served.hub.children === children);
  await served.clock.advance(OPEN_WAIT_MS);
  return promise;
}

const toolNames = async (client: RawClient): Promise<string[]> =>
  (await client.request("tools/list")).result.tools.map(({ name }: { name: string }) => name.split("_")[0]);

test("the first list waits for it", async (t) => {
  const served = await serve(t);
  const client = rawClient(served.url);
  await without(served, client.initialize());
  await served.clock.advance(START_WAIT_MS - OPEN_WAIT_MS - 1);
  const listed = toolNames(client);
  served.release();
  assert.deepEqual([...new Set(await listed)], ["fast", "slow"]);
  assert.deepEqual(served.leftOut, []);
});

test("a list does not wait for a server that fails to start", async (t) => {
  const served = await serve(t, {}, "exit 1");
  const client = rawClient(served.url);
  await without(served, client.initialize());
  const listed = client.request("tools/list");
  served.release();
  // The clock stands still, so the list ends only because the server has failed.
  const { result } = await listed;
  assert.ok(result.tools.every(({ name }: { name: string }) => name.startsWith("fast_")));
  assert.match(result._meta["gateway.internal/failedTargets"].slow, /exited with code 1/);
  assert.deepEqual(served.leftOut, []);
});

test("a server that exceeds startWait delays the first session only", async (t) => {
  const served = await serve(t);
  const first = rawClient(served.url);
  await without(served, first.initialize());
  const listed = toolNames(first);
  await served.clock.advance(START_WAIT_MS - OPEN_WAIT_MS);
  assert.deepEqual([...new Set(await listed)], ["fast"]);
  const second = rawClient(served.url);
  await without(served, second.initialize(), 4);
  assert.deepEqual([...new Set(await toolNames(second))], ["fast"]);
  // The second warning is folded into a later line.
  assert.deepEqual(served.leftOut, [`slow ${NOT_STARTED}`]);
  served.release();
  await eventually("it is up in both sessions", async () => {
    const lists = [await toolNames(first), await toolNames(second)];
    return lists.every((names) => names.includes("slow"));
  });
  assert.equal(served.hub.targets[1]?.exceededStartWait, false);
});

test("startWait: 0s disables the wait", async (t) => {
  const served = await serve(t, { startWait: "0s" });
  const opening = rawClient(served.url);
  const opened = opening.initialize();
  await eventually("the fast one has answered", async () => {
    await served.clock.advance(0);
    return existsSync(served.opened);
  });
  assert.match((await opened).message.result.instructions, /\[slow\]/);
  assert.deepEqual([...new Set(await toolNames(opening))], ["fast"]);
});

test("initialize and lists go on without it, and list_changed comes with it", async (t) => {
  const served = await serve(t);
  const client = rawClient(served.url);
  const opened = await without(served, client.initialize());
  assert.match(opened.message.result.instructions, /\[slow\]\nNot available: is still starting/);
  for (const kind of ["tools", "prompts", "resources"])
    assert.equal(opened.message.result.capabilities[kind].listChanged, true, kind);
  await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
  const listed = toolNames(client);
  await served.clock.advance(START_WAIT_MS - OPEN_WAIT_MS);
  assert.deepEqual([...new Set(await listed)], ["fast"]);
  assert.deepEqual(served.leftOut, [`slow ${NOT_STARTED}`]);
  assert.equal(served.hub.targets[1]?.failures.last()?.reason, NOT_STARTED);
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
  const listing = modernPost(served.url, "tools/list");
  await without(served, modernPost(served.url, "server/discover"));
  await served.clock.advance(START_WAIT_MS - OPEN_WAIT_MS);
  const listed = await listing;
  assert.deepEqual(served.leftOut, [`slow ${NOT_STARTED}`]);
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
