/**
 * An MCP failure is a failure: whatever way it takes (a tool's `isError`, a JSON-RPC error, a rule, a server that is
 * gone), official clients see the reason, and the log, the records, the metrics and gwctl tell of it.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import type { RequestRecord } from "../../src/record/trace/record.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";

const SECRET = "sk-4f9d2c81b7";
const rules = { policies: { mcpAuthorization: { rules: ["mcp.tool.name != 'state'"] } } };
const withSecret = {
  name: "odd",
  stdio: { ...stdioFixture("odd-server", "--name=odd"), env: { SECRET_KEY: SECRET } },
};
const config = (targets: readonly object[], settings: object = {}): string =>
  mcpConfig(targets, settings, rules).replace(",access=off", "");

const LAYOUTS = {
  "one target": { yaml: config([withSecret]), tool: (name: string) => name },
  "several targets": { yaml: config([withSecret, oddTarget("two")]), tool: (name: string) => `odd_${name}` },
} as const;

/** Real time, and as much more as a test wants to have passed: nothing but the silent call is hurried. */
let skippedMs = 0;
const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + skippedMs };
const PAST_REQUEST_TIMEOUT_MS = 301_000;

/** Lets the request timeout pass, again and again, because the call may not have begun at the first time. */
async function hurried<T>(promise: Promise<T>): Promise<T> {
  const timer = setInterval(() => {
    skippedMs += PAST_REQUEST_TIMEOUT_MS;
  }, 200);
  return promise.finally(() => clearInterval(timer));
}

const gateways = new Map<string, TestGateway>();
before(async () => {
  for (const [name, { yaml }] of Object.entries(LAYOUTS)) gateways.set(name, await startGateway(yaml, { clock }));
});
after(() => Promise.all([...gateways.values()].map((gateway) => gateway.close())));

const info = { name: "failures", version: "1.0.0" };

interface Caller {
  call(name: string, args: object): Promise<unknown>;
  close(): Promise<void>;
}

const CLIENTS: Record<string, (url: URL) => Promise<Caller>> = {
  "the first generation": async (url) => {
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(url));
    return {
      call: (name, args) => client.callTool({ name, arguments: { ...args } }),
      close: () => client.close(),
    };
  },
  "the second generation": async (url) => {
    const client = new ModernClient(info, { versionNegotiation: { mode: "auto" } });
    await client.connect(new ModernTransport(url));
    return {
      call: (name, args) => client.callTool({ name, arguments: { ...args } }),
      close: () => client.close(),
    };
  },
};

interface Case {
  readonly tool: string;
  readonly args?: object;
  /** What the client sees: in the result, or in the error that it throws. */
  readonly seen: RegExp;
  readonly outcome: string;
  readonly code: string;
  readonly source: string;
  readonly reason: RegExp;
}

const CASES: readonly Case[] = [
  {
    tool: "fail",
    args: { message: "DATABASE_URL is not set" },
    seen: /DATABASE_URL is not set/,
    outcome: "tool_error",
    code: "tool_error",
    source: "upstream",
    reason: /^failed: DATABASE_URL is not set$/,
  },
  {
    tool: "fail",
    seen: new RegExp(SECRET),
    outcome: "tool_error",
    code: "tool_error",
    source: "upstream",
    reason: /^failed: <redacted>$/,
  },
  {
    tool: "nonsense",
    seen: /Unknown tool: nonsense/,
    outcome: "rpc_error",
    code: "rpc_error",
    source: "client",
    reason: /Unknown tool: nonsense \(-32602\)/,
  },
  {
    tool: "state",
    seen: /Unknown tool: (?:odd_)?state/,
    outcome: "denied",
    code: "authorization_denied",
    source: "client",
    reason: /^the tool "state" is hidden$/,
  },
  {
    tool: "silent",
    seen: /target "odd" did not respond within/,
    outcome: "failed",
    code: "backend_timeout",
    source: "upstream",
    reason: /did not respond within/,
  },
  // Last: what comes next could still meet the process that ends.
  {
    tool: "crash",
    seen: /target "odd" .*SIGKILL/,
    outcome: "failed",
    code: "backend_unavailable",
    source: "upstream",
    reason: /SIGKILL/,
  },
];

async function records(gateway: TestGateway): Promise<RequestRecord[]> {
  const answer = await fetch(`${gateway.adminUrl}/debug/requests?limit=500`);
  return ((await answer.json()) as { requests: RequestRecord[] }).requests;
}

for (const [layout, { tool: named }] of Object.entries(LAYOUTS)) {
  for (const [generation, connect] of Object.entries(CLIENTS)) {
    for (const one of CASES) {
      test(`${layout}, ${generation}: ${one.tool}${one.args ? " with a reason" : ""} is ${one.outcome}`, async (t) => {
        const gateway = gateways.get(layout) as TestGateway;
        const client = await connect(new URL(`${gateway.url()}/mcp`));
        t.after(() => client.close());
        const newest = (await records(gateway))[0]?.seq ?? -1;
        const called = client.call(named(one.tool), one.args ?? {}).then(
          (result) => JSON.stringify(result),
          (error: Error) => error.message,
        );
        const seen = await (one.code === "backend_timeout" ? hurried(called) : called);
        assert.match(seen, one.seen);
        const record = (await records(gateway)).find(({ seq, mcp }) => seq > newest && mcp?.method === "tools/call");
        assert.equal(record?.status, 200);
        assert.equal(record.mcp?.outcome, one.outcome);
        assert.equal(record.mcp?.target, "odd");
        assert.equal(record.mcp?.name, one.tool);
        assert.equal(record.failure?.code, one.code);
        assert.equal(record.failure?.source, one.source);
        assert.match(record.failure?.message ?? "", one.reason);
        const line = await gateway.logged(`id=${record.id} `);
        assert.match(line, new RegExp(`mcp.outcome=${one.outcome} .*error=${one.code} source=${one.source} reason=`));
        assert.ok(!gateway.log().join("\n").includes(SECRET));
      });
    }
  }
}

test("what succeeded is no failure, and says so", async () => {
  const gateway = gateways.get("one target") as TestGateway;
  const client = await (CLIENTS["the first generation"] as (url: URL) => Promise<Caller>)(
    new URL(`${gateway.url()}/mcp`),
  );
  // The words of a failure in what a tool says are none.
  await client.call("echo", { message: '{"isError":true} "isError": true' });
  const [record] = (await records(gateway)).filter(({ mcp }) => mcp?.method === "tools/call");
  assert.equal(record?.mcp?.outcome, "ok");
  assert.equal(record?.failure, undefined);
  await client.close();
});

test("metrics count by target, tool and outcome, and names that are made up are bounded", async (t) => {
  const gateway = await startGateway(config([withSecret]));
  t.after(() => gateway.close());
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  await client.call("echo", {});
  await client.call("fail", { message: "x" });
  await client.call("state", {});
  for (let i = 0; i < 60; i++) await client.call(`made-up-${i}`, {});
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  const lines = metrics.split("\n").filter((line) => line.startsWith("gateway_mcp_results_total"));
  const count = (tool: string, outcome: string): string | undefined =>
    lines.find((line) => line.includes(`tool="${tool}"`) && line.includes(`outcome="${outcome}"`))?.split(" ")[1];
  assert.equal(count("echo", "ok"), "1");
  assert.equal(count("fail", "tool_error"), "1");
  assert.equal(count("state", "denied"), "1");
  assert.equal(count("", "ok"), "1", "initialize");
  assert.ok(lines.every((line) => line.includes('target="odd"')));
  assert.equal(lines.filter((line) => line.includes("made-up")).length + 2, 50);
  assert.equal(count("other", "rpc_error"), "12");
});

for (const [generation, connect] of Object.entries(CLIENTS)) {
  test(`${generation} learns why a server cannot be started, with status 200 and our header`, async (t) => {
    const script = "echo 'DATABASE_URL is not set' >&2; exit 1";
    const gateway = await startGateway(config([{ name: "db", stdio: { cmd: "sh", args: ["-c", script] } }]));
    t.after(() => gateway.close());
    await assert.rejects(connect(new URL(`${gateway.url()}/mcp`)), /DATABASE_URL is not set/);
    const answer = await rawClient(`${gateway.url()}/mcp`).initialize();
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("x-gateway-error"), "backend_unavailable");
    assert.match(answer.message.error.message, /target "db" exited with code 1: DATABASE_URL is not set/);
    const [record] = await records(gateway);
    assert.equal(record?.failure?.code, "backend_unavailable");
    assert.equal(record?.mcp?.outcome, "failed");
  });
}
