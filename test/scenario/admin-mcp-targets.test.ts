/**
 * MCP servers that are down, as the admin interface tells of them: why, and what they last wrote (journeys 2 and 3).
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { TaskReport } from "../../src/base/tasks.ts";
import type { TestGateway } from "../support/gateway.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { gatewayFor } from "../support/scenario.ts";

const SECRET = "k3y-that-nobody-may-see";
const NODE = JSON.stringify(process.execPath);

interface Failure {
  readonly target: string;
  readonly reason: string;
  readonly stderr: readonly string[];
  readonly agoMs: number;
  readonly times: number;
  readonly isOver: boolean;
}

async function backendTask(
  gateway: TestGateway,
): Promise<{ failures: Failure[]; children: TaskReport[]; text: string }> {
  const text = await (await fetch(`${gateway.adminUrl}/debug/tasks`)).text();
  const { tasks } = JSON.parse(text) as { tasks: TaskReport[] };
  const backend = tasks.find(({ kind }) => kind === "mcp backend");
  return { failures: (backend?.detail?.failures ?? []) as Failure[], children: backend?.children ?? [], text };
}

function initialize(gateway: TestGateway): Promise<Response> {
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } };
  return fetch(`${gateway.url()}/mcp`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params }),
  });
}

test("of five servers the broken ones are named, with their reason and last words, and without secrets", async (t) => {
  const good = stdioFixture("odd-server");
  const gateway = await gatewayFor(
    t,
    `
mcp:
  port: 0
  targets:
    - { name: good, stdio: ${JSON.stringify(good)} }
    - name: bad
      stdio:
        cmd: ${NODE}
        args: ["-e", "console.error('starting'); console.error('bad key: ' + process.env.KEY); process.exit(3)"]
        env: { KEY: ${SECRET} }
    - { name: missing, stdio: { cmd: /nonexistent/server, args: [] } }
`,
  );
  const opened = await initialize(gateway);
  assert.equal(opened.status, 200);
  await opened.text();
  const { failures, children, text } = await backendTask(gateway);
  assert.deepEqual(
    failures.map(({ target, reason, stderr, times, isOver }) => ({ target, reason, stderr, times, isOver })),
    [
      {
        target: "bad",
        reason: "exited with code 3: bad key: <redacted>",
        stderr: ["starting", "bad key: <redacted>"],
        times: 1,
        isOver: false,
      },
      {
        target: "missing",
        reason: "could not be started: spawn /nonexistent/server ENOENT: no such file",
        stderr: [],
        times: 1,
        isOver: false,
      },
    ],
  );
  const [session] = children;
  const targets = session?.detail?.targets as Record<string, unknown>[];
  assert.deepEqual(
    targets.map(({ target, state, lastError }) => ({ target, state, lastError })),
    [
      { target: "good", state: "up", lastError: undefined },
      { target: "bad", state: "down", lastError: "exited with code 3: bad key: <redacted>" },
      {
        target: "missing",
        state: "down",
        lastError: "could not be started: spawn /nonexistent/server ENOENT: no such file",
      },
    ],
  );
  assert.ok(!text.includes(SECRET));
});

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "admin-mcp-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("a server that never came up is remembered without any session, and said to be mended when it is", async (t) => {
  const mended = join(folderFor(t), "mended");
  const { cmd, args } = stdioFixture("odd-server");
  const script = `if [ -e '${mended}' ]; then exec '${cmd}' ${args.map((one) => `'${one}'`).join(" ")}; fi; echo 'no licence' >&2; exit 1`;
  const gateway = await gatewayFor(
    t,
    `mcp: { port: 0, targets: [{ name: only, stdio: { cmd: sh, args: ["-c", ${JSON.stringify(script)}] } }] }\n`,
  );
  await (await initialize(gateway)).text();
  const before = await backendTask(gateway);
  assert.deepEqual(before.children, []);
  assert.equal(before.failures[0]?.reason, "exited with code 1: no licence");
  assert.deepEqual(before.failures[0]?.stderr, ["no licence"]);
  assert.equal(before.failures[0]?.isOver, false);
  const line = await gateway.logged("mcp.method=initialize");
  assert.match(line, /status=200 .*mcp.outcome=failed .*error=backend_unavailable .*no licence/);

  writeFileSync(mended, "");
  assert.ok(existsSync(mended));
  const opened = await initialize(gateway);
  assert.equal(opened.status, 200);
  await opened.text();
  const [failure] = (await backendTask(gateway)).failures;
  assert.equal(failure?.isOver, true);
  assert.equal(failure?.reason, "exited with code 1: no licence");
});

test("servers that never failed leave no trace of it", async (t) => {
  const gateway = await gatewayFor(
    t,
    `mcp: { port: 0, targets: [{ name: good, stdio: ${JSON.stringify(stdioFixture("odd-server"))} }] }\n`,
  );
  await (await initialize(gateway)).text();
  assert.deepEqual((await backendTask(gateway)).failures, []);
});
