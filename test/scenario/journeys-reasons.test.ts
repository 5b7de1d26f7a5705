/**
 * What a beginner's first failures look like: refusals of MCP and LLM requests with their reason in the log and in
 * `gwctl explain`, tools that are hidden, and servers that cannot be started, each with what mends it.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type Json, LEGACY_HEADERS, rawClient } from "../support/mcp/client.ts";
import { fixturePath } from "../support/mcp/fixture.ts";
import { gatewayFor } from "../support/scenario.ts";

const DEMO = join(fixturePath("x"), "../../../../src/demo/mcp-server.js");
const demo = { cmd: process.execPath, args: [DEMO] };

/** Unlike the other scenarios, with the line per request. */
function mcp(t: TestContext, targets: readonly object[], route: object = {}): Promise<TestGateway> {
  const gateways = { default: { port: 0, address: "127.0.0.1" } };
  const routes = [{ name: "tools", backends: [{ mcp: { targets } }], ...route }];
  return gatewayFor(t, JSON.stringify({ gateways, routes }));
}

async function explained(gateway: TestGateway, id: string): Promise<string> {
  const { stdout, stderr } = await gwctl(["explain", id, "-p", new URL(gateway.adminUrl).port]);
  return stdout + stderr;
}

const CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}';
const mcpRefusals: [name: string, init: RequestInit, status: number, code: string, reason: RegExp][] = [
  [
    "no session",
    { body: CALL },
    400,
    "bad_request",
    /the mcp-session-id header is required; initialize a session first/,
  ],
  ["a session that is gone", { body: CALL, headers: { "mcp-session-id": "x" } }, 404, "not_found", /Session not found/],
  [
    "a form instead of JSON",
    { body: "a=b", headers: { "content-type": "text/plain" } },
    415,
    "unsupported_media_type",
    /the content type must be application\/json/,
  ],
  [
    "a client that takes no events",
    { body: CALL, headers: { accept: "text/html" } },
    406,
    "bad_request",
    /Not Acceptable/,
  ],
  ["a method that MCP has not", { method: "PATCH" }, 405, "method_not_allowed", /Method not allowed/],
  ["a body that is no JSON", { body: "{" }, 400, "bad_request", /Parse error/],
];

test("a refusal of the MCP protocol has its reason in the log and in explain", async (t) => {
  const gateway = await mcp(t, [{ name: "demo", stdio: demo }]);
  for (const [name, init, status, code, reason] of mcpRefusals) {
    const response = await fetch(`${gateway.url()}/mcp`, {
      method: "POST",
      ...init,
      headers: { ...LEGACY_HEADERS, ...(init.headers as Record<string, string>) },
    });
    await response.text();
    assert.equal(response.status, status, name);
    const id = response.headers.get("x-request-id") ?? "";
    const line = await gateway.logged(`id=${id}`);
    assert.match(line, new RegExp(`error=${code} source=client reason=`), name);
    assert.match(line, reason, name);
    assert.match(await explained(gateway, id), reason, name);
  }
});

test("an answer that is none of these has no reason", async (t) => {
  const gateway = await mcp(t, [{ name: "demo", stdio: demo }]);
  const answer = await rawClient(`${gateway.url()}/mcp`).initialize();
  const line = await gateway.logged(`id=${answer.headers.get("x-request-id")}`);
  assert.doesNotMatch(line, /reason=|error=/);
});

test("a call of a hidden tool looks unknown to the client, and explain names the rule", async (t) => {
  const gateway = await mcp(t, [{ name: "demo", stdio: demo }], {
    policies: { mcpAuthorization: { rules: ['mcp.tool.name in ["echo"]'] } },
  });
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const call = (name: string): Promise<Json> =>
    client.post({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name, arguments: { message: "m" } } });
  const hidden = await call("now");
  assert.equal(hidden.message.error.message, "Unknown tool: now");
  assert.doesNotMatch(hidden.text, /hidden|rule/);
  const text = await explained(gateway, hidden.headers.get("x-request-id"));
  assert.match(text, /Denied by `mcpAuthorization` of route `tools`.*the tool "now" is hidden: no allow rule is true/i);
  assert.match(await gateway.logged(`id=${hidden.headers.get("x-request-id")}`), /error=authorization_denied/);

  const shown = await call("echo");
  assert.equal(shown.message.result.content[0].text, "m");
  const listed = await client.post({ jsonrpc: "2.0", id: 8, method: "tools/list", params: {} });
  for (const { headers } of [shown, listed])
    assert.doesNotMatch(await gateway.logged(`id=${headers.get("x-request-id")}`), /error=/);
});

const LLM = `
gateways: { default: { port: 0 } }
routes:
  - backends: [{ ai: { name: demo, models: [{ name: known, provider: demo }] } }]
`;
const chat = JSON.stringify({ messages: [{ role: "user", content: "planted words" }] });
const llmRefusals: [name: string, init: RequestInit, status: number, code: string, reason: RegExp][] = [
  [
    "no JSON",
    { body: "planted" },
    400,
    "bad_request",
    /reason="?the body must be one JSON object|reason="?the JSON body is/,
  ],
  ["no model", { body: chat }, 400, "bad_request", /the body has no 'model'/],
  [
    "another model",
    { body: chat.replace("{", '{"model":"other",') },
    404,
    "not_found",
    /the model .*other.* does not exist/,
  ],
  [
    "an encoded body",
    { body: "x", headers: { "content-encoding": "gzip" } },
    415,
    "unsupported_media_type",
    /content-encoding gzip/,
  ],
];

test("a refusal of an LLM request has its reason in the log and in explain, and nothing of the prompt", async (t) => {
  const gateway = await gatewayFor(t, LLM);
  for (const [name, init, status, code, reason] of llmRefusals) {
    const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      ...init,
      headers: { "content-type": "application/json", ...(init.headers as Record<string, string>) },
    });
    await response.text();
    assert.equal(response.status, status, name);
    const id = response.headers.get("x-request-id") ?? "";
    const line = await gateway.logged(`id=${id}`);
    assert.match(line, new RegExp(`error=${code} source=client`), name);
    assert.match(line, reason, name);
    const text = await explained(gateway, id);
    assert.match(text, new RegExp(`The request was rejected \\(\`${code}\`, ${status}\\)`), name);
    assert.doesNotMatch(line + text, /planted/);
  }
  const fine = await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: chat.replace("{", '{"model":"known",'),
  });
  await fine.text();
  assert.doesNotMatch(await gateway.logged(`id=${fine.headers.get("x-request-id")}`), /error=/);
});

const RUNS_DEMO = `#!/bin/sh\nexec "${process.execPath}" "${DEMO}"\n`;

function program(folder: string, name: string): void {
  mkdirSync(join(folder, name, ".."), { recursive: true });
  writeFileSync(join(folder, name), RUNS_DEMO);
  chmodSync(join(folder, name), 0o755);
}

test("a command that begins with ./ is beside its file; with a cwd it counts from there", async (t) => {
  const gateway = await mcp(t, [
    { name: "beside", stdio: { cmd: "./server.sh" } },
    { name: "inside", stdio: { cmd: "./inner.sh", cwd: "sub" } },
    { name: "up", stdio: { cmd: "../server.sh", cwd: "sub" } },
    { name: "wrong", stdio: { cmd: "./server.sh", cwd: "sub" } },
    { name: "bare", stdio: { cmd: "server.sh" } },
  ]);
  program(gateway.folder, "server.sh");
  program(gateway.folder, "sub/inner.sh");
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const { result } = await client.request("tools/list");
  const servers = new Set(result.tools.map(({ name }: { name: string }) => name.split("_")[0]));
  assert.deepEqual([...servers].sort(), ["beside", "inside", "up"]);
  const failed = result._meta["gateway.internal/failedTargets"];
  assert.match(failed.wrong, /could not be started: .*ENOENT \(in .*sub\): no such file/);
  assert.match(failed.bare, /could not be started: .*ENOENT: it is not on the gateway's PATH/);
});

test("a server that ends at once is named with the line that says why, in every answer [R7]", async (t) => {
  const crash =
    "process.stderr.write('Error: API_KEY is missing\\n    at x (y:1:2)\\n\\nNode.js v20.0.0\\n'); process.exit(1)";
  const gateway = await mcp(t, [
    { name: "demo", stdio: demo },
    { name: "broken", stdio: { cmd: process.execPath, args: ["-e", crash] } },
  ]);
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  for (let i = 0; i < 2; i++) {
    const { result } = await client.request("tools/list");
    assert.match(
      result._meta["gateway.internal/failedTargets"].broken,
      /exited with code 1: Error: API_KEY is missing$/,
      "also while it rests before the next attempt",
    );
  }
});
