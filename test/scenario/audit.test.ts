import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway } from "../support/gateway.ts";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startCollector } from "../support/otlp/collector.ts";

async function setUp(t: TestContext, audit: object, telemetry = "") {
  const folder = mkdtempSync(join(tmpdir(), "gateway-audit-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "logs/audit.log");
  mkdirSync(join(folder, "logs"));
  const settings = JSON.stringify(audit).replace("PATH", path);
  const gateway = await startGateway(`
config: { audit: ${settings}${telemetry} }
gateways: { default: { port: 0 } }
routes:
  - name: tools
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
    policies:
      apiKey: { mode: strict, keys: [{ key: sk-very-secret-1, metadata: { user_id: ada } }] }
      mcpAuthorization: { rules: ['mcp.tool.name != "add"'] }
  - name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
    policies: { apiKey: { mode: strict, keys: [{ key: sk-very-secret-1, metadata: { user_id: ada } }] } }
  - name: plain
    matches: [{ path: { pathPrefix: / } }]
    policies: { directResponse: { status: 200, body: fine } }
`);
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (isOpen) await gateway.close();
    isOpen = false;
  };
  t.after(close);
  const headers = { authorization: "Bearer sk-very-secret-1" };
  const client = rawClient(`${gateway.url()}/mcp`);
  const call = (name: string, args: object, id = 7) =>
    client.post({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: args } }, headers);
  const open = async (): Promise<void> => {
    const answer = await client.post(
      {
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
      },
      headers,
    );
    client.sessionId = answer.headers.get("mcp-session-id") ?? undefined;
  };
  const chat = (more = {}) =>
    fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }], ...more }),
    });
  const records = () =>
    readFileSync(path, "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { gateway, path, call, open, chat, close, records };
}

test("who called which tool and model with which arguments, redacted, and what was denied", async (t) => {
  const { call, open, chat, close, records, path } = await setUp(t, {
    file: { path: "PATH" },
    arguments: "whole",
    results: "whole",
  });
  await open();
  await call("echo", { message: "hello", password: "hunter2-hunter2", copied: "sk-very-secret-1" });
  await call("add", { a: 1, b: 2 });
  const said = contentOf(await (await chat()).json());
  await close();
  const [echo, denied, llm, ...more] = records();
  assert.deepEqual(more, []);
  assert.deepEqual(
    [echo?.kind, echo?.auth, echo?.subject, echo?.route, echo?.method, echo?.name, echo?.outcome],
    ["mcp", "apiKey", "ada", "tools", "tools/call", "echo", "ok"],
  );
  assert.match(String(echo?.arguments), /"message":"hello"/);
  assert.match(String(echo?.result), /hello/);
  assert.deepEqual([denied?.name, denied?.outcome], ["add", "denied"]);
  assert.deepEqual([llm?.kind, llm?.subject, llm?.outcome, llm?.status], ["llm", "ada", "ok", 200]);
  assert.match(String(llm?.arguments), /"content":"hello"/);
  assert.equal(typeof llm?.outputTokens, "number");
  assert.equal(llm?.finish, "stop");
  assert.equal(llm?.result, said);
  const text = readFileSync(path, "utf8");
  assert.ok(!text.includes("hunter2") && !text.includes("sk-very-secret"), text);
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test("hashes are those of the arguments with sorted keys; results are left out unless asked for", async (t) => {
  const { call, open, close, records } = await setUp(t, { file: { path: "PATH" } });
  await open();
  await call("echo", { message: "hello", a: { d: 1, c: 2 } });
  await call("echo", { a: { c: 2, d: 1 }, message: "hello" }, 8);
  await close();
  const [first, second] = records();
  const expected = createHash("sha256").update('{"a":{"c":2,"d":1},"message":"hello"}').digest("hex");
  assert.deepEqual([first?.arguments_sha256, second?.arguments_sha256], [expected, expected]);
  assert.ok(first && !("arguments" in first) && !("result" in first) && !("result_sha256" in first));
});

test("the hash of an LLM result is that of the words that the client got, streamed or not", async (t) => {
  const { chat, close, records } = await setUp(t, { file: { path: "PATH" }, results: "hash", hashKey: "k-k-k-k" });
  const whole = contentOf(await (await chat()).json());
  const streamed = (await (await chat({ stream: true })).text())
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => contentOf(JSON.parse(line.slice(6))))
    .join("");
  await (await chat({ model: "unknown/model", stream: true })).text();
  await close();
  const hash = (text: string) => createHmac("sha256", "k-k-k-k").update(text).digest("hex");
  assert.ok(whole.length > 0 && streamed.length > 0);
  const [first, second] = records();
  assert.deepEqual([first?.finish, first?.result_sha256], ["stop", hash(whole)]);
  assert.deepEqual([second?.finish, second?.result_sha256], ["stop", hash(streamed)]);
  assert.ok(first && !("result" in first));
});

test("over OTLP, and refused at the start where nothing exports log records", async (t) => {
  const collector = await startCollector();
  t.after(() => collector.close());
  const otlp = `, telemetry: { otlp: { endpoint: "${collector.httpUrl}", signals: [logs] } }`;
  const { chat, close } = await setUp(t, { otlp: true }, otlp);
  await chat().then((response) => response.text());
  await close();
  const record = collector.logs().find(({ body }) => body === "audit");
  assert.deepEqual([record?.attributes.kind, record?.attributes.subject], ["llm", "ada"]);
  await assert.rejects(
    startGateway("config: { audit: { otlp: true } }\ngateways: { default: { port: 0 } }\nroutes: []\n"),
    /config\.audit\.otlp: needs/,
  );
});

test("a file that cannot be written stops nothing, unless records are required", async (t) => {
  const { gateway, chat, path, records } = await setUp(t, { file: { path: "PATH" }, required: true });
  rmSync(join(path, ".."), { recursive: true });
  assert.equal((await chat()).status, 200, "nobody knows yet");
  await gateway.logged("audit file cannot be written");
  const refused = await chat();
  assert.deepEqual([refused.status, refused.headers.get("x-gateway-error")], [503, "audit_unavailable"]);
  assert.equal((await fetch(`${gateway.url()}/other`)).status, 200, "what is not audited goes on");
  mkdirSync(join(path, ".."));
  await gateway.logged("audit file can be written again");
  assert.equal((await chat()).status, 200);
  await eventually("three records", () => records().length === 3);
  assert.deepEqual(
    records().map(({ outcome }) => outcome),
    ["ok", "failed", "ok"],
  );
});

test("a file that cannot be written stops nothing by default, and nothing is lost when it can be again", async (t) => {
  const { gateway, chat, path, records } = await setUp(t, { file: { path: "PATH" } });
  rmSync(join(path, ".."), { recursive: true });
  writeFileSync(join(path, ".."), "in the way");
  for (let i = 0; i < 3; i++) assert.equal((await chat()).status, 200);
  await gateway.logged("audit file cannot be written");
  rmSync(join(path, ".."));
  mkdirSync(join(path, ".."));
  await gateway.logged("audit file can be written again");
  assert.equal(records().length, 3);
});

test("the path is relative to the configuration file", async (t) => {
  const { gateway, chat } = await setUp(t, { file: { path: "audit.log" } });
  assert.equal((await chat()).status, 200);
  await eventually("a record", () => existsSync(join(gateway.folder, "audit.log")));
});

/** What the model said, in an answer of the chat API or in one event of it. */
function contentOf(body: unknown): string {
  const [choice] = (body as { choices: { message?: { content: string }; delta?: { content?: string } }[] }).choices;
  return choice?.message?.content ?? choice?.delta?.content ?? "";
}
