/** Sessions, children and calls under abuse: nothing is left behind, and everybody gets an answer. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { childrenOf, isAlive } from "../support/mcp/processes.ts";

const skip = process.platform === "linux" ? false : "looks at /proc";
const MINI = join(process.cwd(), "test/support/mcp/mini-server.sh");
const mini = { name: "mini", stdio: { cmd: "/bin/sh", args: [MINI] } };

/** Each is a process. `LEAK_SESSIONS=10000 npm test -- test/scenario/mcp-leaks` is the long run. */
const SESSIONS = Number(process.env.LEAK_SESSIONS ?? 250);

let gateway: TestGateway;
let impatient: TestGateway;
before(async () => {
  gateway = await startGateway(mcpConfig([mini], { maxChildren: SESSIONS + 1000 }));
  impatient = await startGateway(mcpConfig([mini], { maxChildren: SESSIONS + 1000, sessionIdleTtl: "2s" }));
});
after(() => Promise.all([gateway.close(), impatient.close()]));

const children = (): number[] => childrenOf(process.pid, "mini-server");

async function openMany(at: TestGateway, count: number): Promise<RawClient[]> {
  const clients: RawClient[] = [];
  for (let i = 0; i < count; i += 20) {
    const some = Array.from({ length: Math.min(20, count - i) }, () => rawClient(`${at.url()}/mcp`));
    for (const answer of await Promise.all(some.map((client) => client.initialize()))) assert.equal(answer.status, 200);
    clients.push(...some);
  }
  return clients;
}

async function inTwenties<Item>(items: readonly Item[], run: (item: Item) => Promise<unknown>): Promise<void> {
  for (let i = 0; i < items.length; i += 20) await Promise.all(items.slice(i, i + 20).map(run));
}

interface Reported {
  readonly kind: string;
  readonly detail?: { readonly pendingCalls?: number };
  readonly children?: readonly Reported[];
}

/** Of all sessions, as the admin interface shows them. */
async function pendingCalls(): Promise<number> {
  const { tasks } = (await (await fetch(`${gateway.adminUrl}/debug/tasks`)).json()) as { tasks: readonly Reported[] };
  const sum = (list: readonly Reported[]): number =>
    list.reduce(
      (total, one) =>
        total + (one.kind === "mcp session" ? (one.detail?.pendingCalls ?? 0) : 0) + sum(one.children ?? []),
      0,
    );
  return sum(tasks);
}

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

async function usedMegabytes(): Promise<number> {
  // Twice: what the first run frees of native handles is collected by the second.
  for (let i = 0; i < 2; i++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 1024 / 1024;
}

test("many sessions opened and abandoned, as many closed: no child, no session, no memory stays [R37]", {
  skip,
}, async () => {
  await inTwenties(await openMany(gateway, 100), (client) => client.delete());
  await eventually("no child is left of the first hundred", () => children().length === 0);
  const beforeMegabytes = await usedMegabytes();

  const closed = await openMany(gateway, SESSIONS);
  assert.ok(children().length > 0);
  await inTwenties(closed, async (client) => assert.equal(await client.delete(), 204));
  await eventually("no child of a closed session is left", () => children().length === 0);

  await openMany(impatient, SESSIONS);
  await eventually("no child of an abandoned session is left", () => children().length === 0);

  for (const one of [gateway, impatient]) {
    const tasks = await (await fetch(`${one.adminUrl}/debug/tasks`)).text();
    assert.ok(!tasks.includes("mcp session"), "a session is still listed");
  }
  const grownMegabytes = (await usedMegabytes()) - beforeMegabytes;
  assert.ok(grownMegabytes < 5, `${grownMegabytes.toFixed(1)} MB more than before`);
});

test("a hundred children killed in the middle of a call: every client gets an error, and nothing stays [R8]", {
  skip,
}, async () => {
  const clients = await openMany(gateway, 100);
  const running = clients.map((client) =>
    client.post({ jsonrpc: "2.0", id: "call", method: "tools/call", params: { name: "x" } }),
  );
  // A call that comes after the kill would find a new process, as it should.
  await eventually("all calls are under way", async () => (await pendingCalls()) === 100);
  for (const pid of children()) process.kill(pid, "SIGKILL");
  for (const { message } of await Promise.all(running)) {
    assert.equal(message.id, "call");
    assert.equal(message.error.code, -32603);
    assert.match(message.error.message, /was terminated by SIGKILL/);
  }
  await inTwenties(clients, (client) => client.delete());
  await eventually("no child is left", () => children().length === 0);
});

test("a storm of sessions beyond the limit is answered, and the limit holds [R47] [A12]", { skip }, async () => {
  const limited = await startGateway(mcpConfig([mini], { maxChildren: 20, maxChildrenPerClient: 20 }));
  const answers = await Promise.all(Array.from({ length: 100 }, () => rawClient(`${limited.url()}/mcp`).initialize()));
  const served = answers.filter(({ status }) => status === 200).length;
  const running = children().length;
  // Before the assertions: children that are left would keep the test process alive.
  await limited.close();
  // On a slow machine, the first sessions are idle long enough to make room for later ones.
  assert.ok(served >= 20, `${served} sessions`);
  assert.ok(answers.every(({ status }) => status === 200 || status === 503));
  assert.ok(running > 0 && running <= 20, `${running} children`);
  await eventually("closing the gateway ends the children", () => children().length === 0);
});

for (const signal of ["SIGKILL", "SIGTERM"] as const) {
  test(`a gateway that gets ${signal} leaves no child behind [R11] [V24]`, { skip }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "gateway-mcp-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    writeFileSync(join(folder, "config.yaml"), mcpConfig([oddTarget(), mini], {}));
    const running = startGatewayProcess(t, ["-f", join(folder, "config.yaml")]);
    const url = `http://127.0.0.1:${await running.port()}/mcp`;
    for (let i = 0; i < 5; i++) await rawClient(url).initialize();
    const pids = [
      ...childrenOf(running.child.pid ?? 0, "mini-server"),
      ...childrenOf(running.child.pid ?? 0, "odd-server"),
    ];
    assert.equal(pids.length, 10);
    running.child.kill(signal);
    const exit = await running.exited;
    if (signal === "SIGTERM") assert.equal(exit.code, 0);
    await eventually("all children are gone", () => !pids.some(isAlive));
  });
}
