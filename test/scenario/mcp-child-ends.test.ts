/**
 * Each way in which a child or its session can end gives back the child's place and its descriptors. Each is gone more
 * often than there are places: one that were kept would stop the next rounds.
 */
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { LEGACY_HEADERS, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { childrenOf } from "../support/mcp/processes.ts";
import { gatewayFor } from "../support/scenario.ts";

const PLACES = 2;
/** Every client of the test has the same address. */
const LIMITS = { maxChildren: PLACES, maxChildrenPerClient: PLACES };
const ROUNDS = 3;
const MINI = join(process.cwd(), "test/support/mcp/mini-server.sh");
const onLinux = { skip: process.platform !== "linux" && "processes are counted in /proc" };

interface Way {
  readonly name: string;
  /** What runs instead of the small server. */
  readonly stdio?: { readonly cmd: string; readonly args: string[] };
  readonly target?: object;
  round(gateway: TestGateway, mark: string, number: number): Promise<void>;
}

const shell = (script: string) => ({ cmd: "sh", args: ["-c", script] });
const clientOf = (gateway: TestGateway) => rawClient(`${gateway.url()}/mcp`);

async function isRefused(gateway: TestGateway): Promise<void> {
  const { message } = await clientOf(gateway).initialize();
  assert.doesNotMatch(message.error.message, /limit of/);
}

/** An `initialize` whose client goes away as soon as the child is there. */
async function goneDuringInitialize(gateway: TestGateway, mark: string): Promise<void> {
  const known = new Set(childrenOf(process.pid, mark));
  const client = new AbortController();
  const initialize = fetch(`${gateway.url()}/mcp`, {
    method: "POST",
    headers: LEGACY_HEADERS,
    signal: client.signal,
    body: '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}',
  });
  await eventually("a child starts", () => childrenOf(process.pid, mark).some((pid) => !known.has(pid)));
  client.abort();
  await assert.rejects(initialize, { name: "AbortError" });
}

const WAYS: readonly Way[] = [
  { name: "a program that does not exist", stdio: { cmd: "/nonexistent/program", args: [] }, round: isRefused },
  { name: "an exit before the first answer", stdio: shell("exit 3"), round: isRefused },
  { name: "an exit upon initialize", stdio: shell("read line; exit 0"), round: isRefused },
  { name: "a refused initialize", stdio: shell('read line; echo "{}"; echo not JSON; exit 1'), round: isRefused },
  { name: "a client that is gone during initialize", stdio: shell("cat > /dev/null"), round: goneDuringInitialize },
  {
    name: "a client that is gone during initialize, and a child that hears nothing of it",
    stdio: shell("trap '' TERM; exec < /dev/null; while :; do sleep 1; done"),
    round: goneDuringInitialize,
  },
  {
    name: "kill -9",
    async round(gateway, mark) {
      const client = clientOf(gateway);
      assert.equal((await client.initialize()).status, 200);
      for (const pid of childrenOf(process.pid, mark)) process.kill(pid, "SIGKILL");
      await eventually("it is gone", () => childrenOf(process.pid, mark).length === 0);
      assert.equal(await client.delete(), 204);
    },
  },
  {
    name: "a stop while a call runs",
    async round(gateway) {
      const client = clientOf(gateway);
      assert.equal((await client.initialize()).status, 200);
      const call = await client.stream({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "x" } });
      assert.equal(await client.delete(), 204);
      await call.ended;
    },
  },
  {
    name: "a reload while it starts",
    stdio: shell("cat > /dev/null"),
    async round(gateway, mark, number) {
      await goneDuringInitialize(gateway, mark);
      const settings = { ...LIMITS, requestTimeout: `${60 + number}s` };
      const target = { name: "one", stdio: shell(`: ${mark}; cat > /dev/null # ${number}`) };
      writeFileSync(join(gateway.folder, "config.yaml"), mcpConfig([target], settings));
    },
  },
  {
    name: "spares",
    target: { spares: 1 },
    async round(gateway) {
      const client = clientOf(gateway);
      assert.equal((await client.initialize()).status, 200);
      assert.equal(await client.delete(), 204);
    },
  },
];

for (const [at, { name, stdio, target, round }] of WAYS.entries()) {
  test(`an end of a child gives its place and its descriptors back: ${name} [R37]`, onLinux, async (t) => {
    const mark = `child-end-${at}`;
    const cmd = stdio ?? { cmd: "sh", args: [MINI] };
    const marked = { cmd: cmd.cmd, args: [...cmd.args, mark] };
    const config = mcpConfig([{ name: "one", stdio: marked, ...target }], LIMITS);
    const gateway = await gatewayFor(t, config);
    const openFiles = (): number => readdirSync("/proc/self/fd").length;
    const spares = target === undefined ? 0 : 1;
    await eventually("it is at rest", async () => (await placesTaken(gateway)) === spares);
    const first = openFiles();
    for (let number = 0; number < ROUNDS; number++) {
      await eventually("there is a place", async () => (await placesTaken(gateway)) < PLACES);
      await round(gateway, mark, number);
    }
    await eventually("every place is given back", async () => (await placesTaken(gateway)) === spares);
    await eventually("no child is left", () => childrenOf(process.pid, mark).length === spares);
    // Connections of clients come and go; three pipes of each round would be more.
    await eventually("every descriptor is given back", () => openFiles() < first + 3 * ROUNDS);
  });
}

for (const limits of [
  { maxChildren: 1, maxChildrenPerClient: 1 },
  { maxChildren: 9, maxChildrenPerClient: 1 },
])
  test(`a session starts after one whose child is still ending: ${JSON.stringify(limits)}`, onLinux, async (t) => {
    const slow = shell(`sh ${MINI}; sleep 0.3`);
    const gateway = await gatewayFor(t, mcpConfig([{ name: "one", stdio: slow }], limits));
    for (let round = 0; round < ROUNDS; round++) {
      const client = clientOf(gateway);
      assert.equal((await client.initialize()).status, 200);
      assert.match((await clientOf(gateway).initialize()).message.error.message, /limit of 1 child processes/);
      assert.equal(await client.delete(), 204);
    }
  });

/** As the gateway counts them. */
async function placesTaken(gateway: TestGateway): Promise<number> {
  const { tasks } = (await (await fetch(`${gateway.adminUrl}/debug/tasks`)).json()) as { tasks: readonly Reported[] };
  return tasks
    .filter(({ kind }) => kind === "mcp backend")
    .reduce((sum, { detail }) => sum + Number(detail?.children ?? 0), 0);
}

interface Reported {
  readonly kind: string;
  readonly detail?: Readonly<Record<string, unknown>>;
}
