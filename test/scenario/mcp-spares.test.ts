/** `spares`: children that wait for sessions; and many sessions at once, which wait in line instead of being refused. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { childrenOf } from "../support/mcp/processes.ts";
import { gatewayFor } from "../support/scenario.ts";

const MINI = join(process.cwd(), "test/support/mcp/mini-server.sh");
const onLinux = { skip: process.platform !== "linux" && "processes are counted in /proc" };
const children = (mark: string): number[] => childrenOf(process.pid, mark);

test(
  "a session gets the child that waits, another one takes its place, and none is left behind",
  onLinux,
  async (t) => {
    const gateway = await gatewayFor(t, mcpConfig([{ ...oddTarget("warm"), spares: 1 }]));
    const mark = "--name=warm";
    await eventually("a spare is started", () => children(mark).length === 1);
    const [spare] = children(mark);
    const clients = [rawClient(`${gateway.url()}/mcp`), rawClient(`${gateway.url()}/mcp`)];
    const pids: number[] = [];
    for (const client of clients) {
      await client.initialize();
      pids.push(JSON.parse((await client.call("state")).result.content[0].text).pid);
      await eventually("the spare is replaced", () => children(mark).length === pids.length + 1);
    }
    assert.equal(pids[0], spare);
    assert.notEqual(pids[0], pids[1], "nobody shares");
    // Spares of a target that is gone end.
    writeFileSync(join(gateway.folder, "config.yaml"), mcpConfig([oddTarget("cold")]));
    await eventually("the spare of a target that is gone has ended", () => children(mark).length < 3);
    await gateway.close();
    await eventually("none is left", () => children(mark).length === 0);
  },
);

test("a spare that ends by itself is not started over and over, and sessions are told why", onLinux, async (t) => {
  const folder = await gatewayFor(t, mcpConfig([oddTarget("x")]));
  const starts = join(folder.folder, "starts");
  const gateway = await gatewayFor(
    t,
    mcpConfig([
      { name: "bad", spares: 2, stdio: { cmd: "sh", args: ["-c", `echo . >> ${starts}; echo broken >&2; exit 3`] } },
    ]),
  );
  const count = (): number => readFileSync(starts, "utf8").split("\n").length - 1;
  await eventually("spares are started", () => children(starts).length === 0 && count() === 2);
  const { message } = await rawClient(`${gateway.url()}/mcp`).initialize();
  assert.match(message.error.message, /exit|broken/);
  assert.ok(count() <= 6, `${count()} starts`);
});

test("a spare makes room for a session of another server", onLinux, async (t) => {
  const targets = [{ ...oddTarget("one"), spares: 1 }, oddTarget("two")];
  const gateway = await gatewayFor(t, mcpConfig(targets, { maxChildren: 2, failureMode: "failClosed" }));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  assert.equal((await client.call("two_echo", { message: "x" })).result.content[0].text, "x");
});

test("100 sessions at once are all opened, four starts at a time", onLinux, async (t) => {
  const gateway = await gatewayFor(
    t,
    mcpConfig([{ name: "mini", stdio: { cmd: "sh", args: [MINI] } }], {
      maxConcurrentStarts: 4,
      maxChildren: 128,
      maxChildrenPerClient: 128,
    }),
  );
  const answers = await Promise.all(Array.from({ length: 100 }, () => rawClient(`${gateway.url()}/mcp`).initialize()));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  assert.equal(new Set(answers.map(({ headers }) => headers.get("mcp-session-id"))).size, 100);
});

for (const [what, target, problem] of [
  ["a remote target", { name: "r", mcp: { url: "http://127.0.0.1:9/mcp" }, spares: 1 }, /only `stdio` targets/],
  ["a shared target", { ...oddTarget(), shared: true, spares: 1 }, /one process/],
] as const)
  test(`spares of ${what} stop the load`, async (t) => {
    await assert.rejects(gatewayFor(t, mcpConfig([target])), problem);
  });
