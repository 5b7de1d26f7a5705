/**
 * MCP servers that mean harm, and clients that leave, over real sockets and processes: control characters on stderr,
 * answers without an end, events in odd forms, a hundred calls that nobody waits for.
 */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall, modernStream } from "../support/mcp/modern-client.ts";
import { gatewayFor } from "../support/scenario.ts";

test("control characters on a child's stderr move no cursor and begin no line, in the log and in the dump [P6]", async (t) => {
  const script = `
process.stderr.write("\\x1b[2J\\x1b]0;title\\x07\\rFAKE entry\\x00\\x9b31m\\u2028next\\n");
process.stderr.write("x".repeat(100000) + "\\n");
process.stdin.on("end", () => process.exit(1)).resume();
setTimeout(() => process.exit(1), 200);`;
  const target = { name: "hostile", stdio: { cmd: process.execPath, args: ["-e", script] } };
  const config = JSON.parse(mcpConfig([target])) as Record<string, unknown>;
  const gateway = await gatewayFor(t, JSON.stringify({ ...config, config: { logging: { level: "trace" } } }));
  const answer = await rawClient(`${gateway.url()}/mcp`).initialize();
  assert.match(answer.text, /hostile/);
  const said = gateway.log().filter((line) => line.includes("FAKE"));
  assert.ok(said.length > 0, "what it wrote is in the log");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there
  const control = /[\x00-\x1f\x7f-\x9f\u2028\u2029]/;
  for (const line of gateway.log()) {
    assert.doesNotMatch(line, control);
    assert.ok(line.length < 10_000, `a line of ${line.length} characters`);
  }
  for (const path of ["/debug/tasks", "/metrics", "/debug/requests"]) {
    const text = await (await fetch(gateway.adminUrl + path)).text();
    assert.doesNotMatch(text.replaceAll("\n", ""), control, path);
  }
});

/** A streamable HTTP server whose answer to `tools/call` is written by the test. */
async function remoteServer(
  t: TestContext,
  answerCall: (id: unknown, res: ServerResponse) => void,
): Promise<{ name: string; mcp: { url: string } }> {
  const server = createServer((req: IncomingMessage, res: ServerResponse) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const text = Buffer.concat(chunks).toString();
      const message = text === "" ? undefined : (JSON.parse(text) as { id?: unknown; method?: string });
      if (message?.method === "tools/call") return answerCall(message.id, res);
      if (message?.method === "server/discover") return void res.writeHead(400).end();
      if (message?.method !== "initialize") return void res.writeHead(req.method === "GET" ? 405 : 202).end();
      const result = {
        protocolVersion: "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name: "remote", version: "1" },
      };
      res.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s" });
      res.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { name: "remote", mcp: { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp` } };
}

for (const [name, type, begin] of [
  ["one line of an event", "text/event-stream", "data: "],
  ["an event of many lines", "text/event-stream", "data: a\n"],
  ["a JSON text", "application/json", '{"jsonrpc":"2.0","result":"'],
] as const) {
  test(`${name} without an end is left by the gateway, and the call fails [M4]`, { timeout: 600_000 }, async (t) => {
    let sent = 0;
    let isLeft = false;
    const line = Buffer.from(name.includes("many") ? `data: ${"x".repeat(65_000)}\n` : "x".repeat(65_536));
    const remote = await remoteServer(t, (_id, res) => {
      res.writeHead(200, { "content-type": type });
      res.write(begin);
      res.on("close", () => {
        isLeft = true;
      });
      const more = (): void => {
        // Far beyond what a message may have; without a limit it would go on for ever.
        while (!res.destroyed && sent < 200e6) {
          sent += line.length;
          if (!res.write(line)) return void res.once("drain", more);
        }
      };
      more();
    });
    const gateway = await gatewayFor(t, mcpConfig([remote]));
    const client = rawClient(`${gateway.url()}/mcp`);
    await client.initialize();
    const answer = await client.post({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "a" } });
    assert.equal(answer.message.id, 7);
    assert.equal(typeof answer.message.error.message, "string");
    await eventually("the server is left", () => isLeft);
    assert.ok(sent < 100e6, `${sent / 1e6} MB were taken`);
  });
}

const FORMS: [name: string, write: (json: string) => Buffer[]][] = [
  ["CR alone", (json) => [Buffer.from(`event: message\rdata: ${json}\r\r`)]],
  ["CRLF", (json) => [Buffer.from(`data: ${json}\r\n\r\n`)]],
  ["a byte order mark", (json) => [Buffer.from(`\ufeffdata: ${json}\n\n`)]],
  [
    "no space after the colon, and comments",
    (json) => [Buffer.from(`:c\n\n: d\ndata:${json}\nretry: x\nid: a\0b\n\n`)],
  ],
  ["one byte at a time", (json) => [...Buffer.from(`data: ${json}\n\n`)].map((byte) => Buffer.of(byte))],
  ["two data lines", (json) => [Buffer.from(`data: ${json.slice(0, -1)}\ndata: ${json.slice(-1)}\n\n`)]],
];
test("events of any form that the standard allows are read: line ends, marks, split characters [M4]", async (t) => {
  let write = FORMS[0]?.[1] ?? (() => []);
  const remote = await remoteServer(t, (id, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    const text = { type: "text", text: "ü人😀" };
    for (const piece of write(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [text] } }))) res.write(piece);
    res.end();
  });
  const gateway = await gatewayFor(t, mcpConfig([remote]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  for (const [name, form] of FORMS) {
    write = form;
    assert.equal((await client.call("a")).result?.content[0].text, "ü人😀", name);
  }
});

const LEFT = 100;
test("a hundred calls that nobody waits for are cancelled at the server, and none stays pending [R15]", {
  timeout: 300_000,
}, async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()]));
  const url = `${gateway.url()}/mcp`;
  const streams = await Promise.all(
    Array.from({ length: LEFT }, () =>
      modernStream(
        url,
        "tools/call",
        { name: "slow", arguments: { ms: 600_000, steps: 2_000 } },
        { meta: { progressToken: 1 } },
      ),
    ),
  );
  for (const stream of streams) await stream.next();
  for (const stream of streams) stream.close();
  let cancelled: unknown[] = [];
  await eventually("the server heard of all", async () => {
    ({ cancelled } = JSON.parse(await modernCall(url, "state")) as { cancelled: unknown[] });
    return cancelled.length >= LEFT;
  });
  assert.equal(new Set(cancelled).size, LEFT, "each once, under its own id");
  const tasks = await (await fetch(`${gateway.adminUrl}/debug/tasks`)).text();
  assert.doesNotMatch(tasks, /"pendingCalls":\s*[1-9]/);
});
