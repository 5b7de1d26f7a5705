/**
 * The first turn of a client after a restart of the gateway: `initialize` and `tools/list` of three servers that start
 * slowly come from stored definitions, to which all rules of the configuration apply. FIRST_TURN_SECONDS=2 lets the
 * servers take that long, and prints how long the client waits.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGateway } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";

const SECONDS = Number(process.env.FIRST_TURN_SECONDS ?? 0);
const NAMES = ["one", "two", "three"];

interface SlowServers {
  readonly targets: readonly Json[];
  /** Processes that are not yet started wait. */
  hold(): void;
  start(): void;
}

function slowServers(folder: string): SlowServers {
  const gate = join(folder, "go");
  const { cmd, args } = stdioFixture("odd-server", '--name="$NAME"');
  const command = [cmd, ...args].join(" ");
  const wait = SECONDS > 0 ? `sleep ${SECONDS}` : `while [ ! -e '${gate}' ]; do sleep 0.02; done`;
  const start = (): void => writeFileSync(gate, "");
  start();
  return {
    targets: NAMES.map((name) => ({
      name,
      stdio: { cmd: "sh", args: ["-c", `${wait}; exec ${command}`], env: { NAME: name } },
    })),
    hold: () => rmSync(gate, { force: true }),
    start,
  };
}

interface Turn {
  readonly client: RawClient;
  readonly tools: string[];
  readonly initializeMs: number;
  readonly listMs: number;
}

async function firstTurn(url: string): Promise<Turn> {
  const client = rawClient(`${url}/mcp`);
  const sinceMs = performance.now();
  const { message } = await client.initialize();
  assert.equal(message.result?.serverInfo.name, "gateway", JSON.stringify(message));
  const openMs = performance.now();
  const { result } = await client.request("tools/list");
  const tools = result.tools.map(({ name }: { name: string }) => name);
  return { client, tools, initializeMs: openMs - sinceMs, listMs: performance.now() - openMs };
}

async function setUp(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "first-turn-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const servers = slowServers(folder);
  const config = (targets: readonly Json[], settings: object = {}): string => {
    const written = JSON.parse(mcpConfig(targets, settings));
    return JSON.stringify({ ...written, config: { ...written.config, store: { folder: join(folder, "state") } } });
  };
  /** Runs a gateway until `use` has ended. */
  const during = async <T>(text: string, use: (url: string) => Promise<T>): Promise<T> => {
    const gateway = await startGateway(text);
    try {
      return await use(gateway.url());
    } finally {
      servers.start();
      await gateway.close();
    }
  };
  /** Resolves with whether the first session of a new gateway opens although its servers do not start. */
  const opensEarly = (text: string): Promise<boolean> =>
    during(text, async (url) => {
      servers.hold();
      const client = rawClient(`${url}/mcp`);
      const opening = client.initialize().then(() => "open");
      const isEarly = (await Promise.race([opening, otherRequests(url)])) === "open";
      servers.start();
      await opening;
      return isEarly;
    });
  return { folder, servers, config, during, opensEarly };
}

/** Many requests later, a session that does not wait for its servers is open. */
async function otherRequests(url: string): Promise<string> {
  for (let i = 0; i < 50; i++) await (await fetch(`${url}/mcp`, { method: "PUT" })).text();
  return "waits";
}

test("after a restart, a session opens and lists all tools before its servers have started", async (t) => {
  const { servers, config, during } = await setUp(t);
  const cold = await during(config(servers.targets), firstTurn);
  await during(config(servers.targets), async (url) => {
    servers.hold();
    const warm = await firstTurn(url);
    assert.deepEqual(warm.tools, cold.tools);
    assert.ok(NAMES.every((name) => warm.tools.includes(`${name}_echo`)));
    const called = warm.client.call("three_echo", { message: "hi" });
    servers.start();
    assert.equal((await called).result.content[0].text, "hi");
    if (SECONDS === 0) return;
    const shown = ({ initializeMs, listMs }: Turn): string =>
      `initialize ${initializeMs.toFixed(0)} ms, tools/list ${listMs.toFixed(0)} ms`;
    t.diagnostic(`first start: ${shown(cold)}; after a restart: ${shown(warm)}`);
  });
});

const onlyWithGate = { skip: SECONDS > 0 && "its servers start when the test says so" };

test(
  "a server whose command, arguments, or environment changed is not served from its definition",
  onlyWithGate,
  async (t) => {
    const { servers, config, during, opensEarly } = await setUp(t);
    await during(config(servers.targets), firstTurn);
    assert.equal(await opensEarly(config(servers.targets)), true);
    const [one, ...others] = servers.targets;
    for (const stdio of [
      { ...one.stdio, env: { ...one.stdio.env, MORE: "x" } },
      { ...one.stdio, args: [...one.stdio.args, "x"] },
      { ...one.stdio, cmd: "/bin/sh" },
    ])
      assert.equal(await opensEarly(config([{ ...one, stdio }, ...others])), false, JSON.stringify(stdio));
  },
);

test("pins, tool selection, and guards apply to stored lists", onlyWithGate, async (t) => {
  const { folder, servers, config, during } = await setUp(t);
  const lock = join(folder, "tools.lock");
  writeFileSync(lock, JSON.stringify({ version: 2, targets: {} }));
  const [one, two, three] = servers.targets;
  const changed = [
    { ...one, tools: { allow: ["echo", "state"] } },
    { ...two, tools: { resultGuard: [{ regex: { action: "reject", rules: [{ pattern: "slow" }] } }] } },
    three,
  ];
  const open = await during(config(changed), firstTurn);
  assert.deepEqual(open.tools.filter((name) => name.startsWith("one_")).sort(), ["one_echo", "one_state"]);
  assert.ok(!open.tools.includes("two_slow") && open.tools.includes("two_echo"));
  await during(config(changed), async (url) => {
    servers.hold();
    assert.deepEqual((await firstTurn(url)).tools, open.tools);
  });
  // The definitions of the servers are the same, so the lists are stored, but no tool is accepted.
  await during(config(changed, { toolsLock: lock }), async (url) => {
    servers.hold();
    const { client, tools } = await firstTurn(url);
    assert.deepEqual(tools, []);
    // A call is compared with what the server itself lists.
    const called = client.call("one_echo", { message: "hi" });
    servers.start();
    assert.match((await called).error.message, /Unknown tool/);
  });
});
