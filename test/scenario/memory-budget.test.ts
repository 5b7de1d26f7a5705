/**
 * Memory that clients make the gateway retain is bounded in sum and shared fairly: bodies that are held open, MCP sessions,
 * cached responses, responses that nobody reads. `node test/memory/run.mjs` attacks a gateway in more ways, and for longer.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const MIB = 1024 * 1024;
const MCP_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** From an address of its own: shares are counted by address. */
function send(
  port: number,
  path: string,
  body: string,
  headers: Record<string, string> = {},
  from = "127.0.0.1",
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      { port, host: "127.0.0.1", localAddress: from, path, method: "POST", headers, agent: false },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            text: Buffer.concat(chunks).toString(),
          }),
        );
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

function initialize(padding: number, clientInfo: object = { name: "c", version: "1" }): string {
  const params = {
    protocolVersion: "2025-06-18",
    capabilities: { experimental: { padding: "x".repeat(padding) } },
    clientInfo,
  };
  return JSON.stringify({ jsonrpc: "2.0", id: 7, method: "initialize", params });
}

const MODERN_HEADERS = { ...MCP_HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list" };

function modernList(padding: number, number: number, clientInfo: object = { name: "c", version: "1" }): string {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": clientInfo,
    "io.modelcontextprotocol/clientCapabilities": { experimental: { number, padding: "x".repeat(padding) } },
  };
  return JSON.stringify({ jsonrpc: "2.0", id: 7, method: "tools/list", params: { _meta: meta } });
}

/** An MCP server over HTTP, and an LLM provider with large answers. */
async function upstreams(t: Parameters<typeof backendFor>[0]) {
  const filler = "x".repeat(480 * 1024);
  return backendFor(t, (req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      res.setHeader("content-type", "application/json");
      const text = Buffer.concat(chunks).toString();
      if (req.url?.endsWith("/chat/completions")) {
        const choices = [{ index: 0, message: { role: "assistant", content: filler }, finish_reason: "stop" }];
        res.end(JSON.stringify({ id: "x", object: "chat.completion", model: "m", choices }));
        return;
      }
      if (req.url !== "/mcp" || req.method !== "POST") {
        res.statusCode = req.url === "/mcp" ? 405 : 200;
        res.end("ok");
        return;
      }
      const { id, method } = JSON.parse(text) as { id?: unknown; method: string };
      if (id === undefined) res.statusCode = 202;
      const result =
        method === "initialize"
          ? { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" } }
          : { tools: [] };
      res.end(id === undefined ? "" : JSON.stringify({ jsonrpc: "2.0", id, result }));
    });
  });
}

const routes = (host: string, mcpSettings = ""): string => `routes:
  - { matches: [{ path: { pathPrefix: /mcp } }], backends: [{ mcp: { targets: [{ name: t, mcp: { url: "http://${host}/mcp" } }]${mcpSettings} } }] }
  - { matches: [{ path: { pathPrefix: /llm } }], backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${host}", cache: { ttl: 1h, scope: shared } } }] }
  - { backends: [{ host: "${host}" }] }
`;
const gateways = "gateways: { default: { port: 0, address: 127.0.0.1 } }\n";

const tooLarge: readonly [name: string, body: string, headers: Record<string, string>, problem: RegExp][] = [
  ["initialize of 3.8 MB", initialize(3.8 * MIB), MCP_HEADERS, /initialize request is larger than 65536 bytes/],
  ["initialize just beyond the limit", initialize(64 * 1024), MCP_HEADERS, /larger than 65536 bytes/],
  ["a client name", initialize(0, { name: "n".repeat(257), version: "1" }), MCP_HEADERS, /clientInfo\.name has more/],
  ["a client version", initialize(0, { name: "n", version: "1".repeat(257) }), MCP_HEADERS, /clientInfo\.version/],
  ["a client title", initialize(0, { name: "n", version: "1", title: "t".repeat(257) }), MCP_HEADERS, /\.title/],
  ["capabilities of 2026-07-28", modernList(3.8 * MIB, 1), MODERN_HEADERS, /clientCapabilities are larger than 65536/],
  [
    "client info of 2026-07-28",
    modernList(0, 1, { name: "c", more: "x".repeat(70_000) }),
    MODERN_HEADERS,
    /larger than/,
  ],
  ["a client name of 2026-07-28", modernList(0, 1, { name: "é".repeat(300) }), MODERN_HEADERS, /clientInfo\.name has/],
];

test("what a session would retain of its client is limited, with a JSON-RPC error for the client's own id [A31]", async (t) => {
  const { host } = await upstreams(t);
  const gateway = await gatewayFor(t, gateways + routes(host));
  for (const [name, body, headers, problem] of tooLarge) {
    const answer = await send(gateway.port(), "/mcp", body, headers);
    const { id, error } = JSON.parse(answer.text) as { id: number; error: { code: number; message: string } };
    assert.deepEqual([answer.status, id, error.code], [400, 7, -32602], name);
    assert.match(error.message, problem, name);
  }
  assert.equal((await send(gateway.port(), "/mcp", initialize(60_000), MCP_HEADERS)).status, 200);
  assert.equal((await send(gateway.port(), "/mcp", modernList(50_000, 1), MODERN_HEADERS)).status, 200);
  const raised = await gatewayFor(t, gateways + routes(host, ", maxInitializeBytes: 200000"));
  assert.equal((await send(raised.port(), "/mcp", initialize(150_000), MCP_HEADERS)).status, 200);
});

test("sessions of one client are limited in number and in memory, and other clients still get theirs [A30] [R50]", async (t) => {
  const { host } = await upstreams(t);
  const clock = fakeClock();
  const limits = { clock, memoryLimits: { sessionBytes: 10 * MIB } };
  const gateway = await gatewayFor(t, gateways + routes(host, ", maxSessions: 20, maxSessionsPerClient: 6"), limits);
  const open = (padding: number, from: string): Promise<Answer> =>
    send(gateway.port(), "/mcp", initialize(padding), MCP_HEADERS, from);
  const statuses = async (count: number, padding: number, from: string): Promise<number[]> => {
    const all: number[] = [];
    for (let i = 0; i < count; i++) all.push((await open(padding, from)).status);
    return all;
  };
  assert.deepEqual(await statuses(8, 0, "127.0.0.2"), [200, 200, 200, 200, 200, 200, 503, 503]);
  const refused = await open(0, "127.0.0.2");
  assert.match(refused.text, /the limit of 6 MCP sessions per client is reached/);
  assert.equal(refused.headers["retry-after"], "5");
  // 60 KB are charged fourfold: 5 MiB, half of all, are enough for 21 sessions, and the number of sessions for 6.
  assert.deepEqual((await statuses(6, 60_000, "127.0.0.3")).filter((status) => status === 200).length, 6);
  assert.equal((await open(0, "127.0.0.4")).status, 200);
  // Idle sessions of a client that is at its limit make room for its own.
  await clock.advance(11_000);
  assert.equal((await open(0, "127.0.0.2")).status, 200);
});

test("lanes of 2026-07-28 clients are limited for each client, and idle ones make room [A31]", async (t) => {
  const { host } = await upstreams(t);
  const clock = fakeClock();
  const gateway = await gatewayFor(t, gateways + routes(host), { clock });
  const list = (n: number, from: string): Promise<Answer> =>
    send(gateway.port(), "/mcp", modernList(0, n), MODERN_HEADERS, from);
  for (let n = 0; n < 64; n++) assert.equal((await list(n, "127.0.0.2")).status, 200);
  const refused = await list(64, "127.0.0.2");
  assert.equal(refused.status, 503);
  assert.match(refused.text, /64 client names and capabilities/);
  assert.equal((await list(64, "127.0.0.3")).status, 200);
  await clock.advance(11_000);
  assert.equal((await list(64, "127.0.0.2")).status, 200);
});

test("bodies that are held open wait for memory, small ones of others are read, and the slow ones are rejected [R51]", async (t) => {
  const { host } = await upstreams(t);
  const clock = fakeClock();
  const gateway = await gatewayFor(t, gateways + routes(host), { clock, memoryLimits: { bodyBytes: 64 * MIB } });
  const head = (bytes: number): string =>
    `POST /llm/v1/chat/completions HTTP/1.1\r\nHost: a\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`;
  // One body of the largest size is read, whatever the limit; others wait.
  const held = Array.from({ length: 5 }, () => openRawClient(gateway.port()));
  for (const client of held) {
    client.write(head(30 * MIB));
    await client.until("100 Continue");
    client.write('{"model":"m","messages":[');
  }
  const prompt = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x".repeat(200_000) }] });
  const json = { "content-type": "application/json" };
  assert.equal((await send(gateway.port(), "/llm/v1/chat/completions", prompt, json, "127.0.0.2")).status, 200);
  // The largest client's body made room for it, and the next of the client is read.
  const [first, , ...others] = held;
  await first?.until("HTTP/1.1 503");
  await clock.advance(10_000);
  for (const client of others) {
    await client.until("HTTP/1.1 503");
    assert.match(await client.until("x-gateway-error: overloaded"), /^retry-after: 5\r$/m);
  }
  for (const client of held) client.close();
  assert.equal((await send(gateway.port(), "/llm/v1/chat/completions", prompt, json)).status, 200);
});

test("an MCP message that there is no memory for gets a JSON-RPC error [R51]", async (t) => {
  const { host } = await upstreams(t);
  const clock = fakeClock();
  const gateway = await gatewayFor(t, gateways + routes(host), { clock, memoryLimits: { bodyBytes: 64 * MIB } });
  const blocker = openRawClient(gateway.port());
  blocker.write(
    `POST /llm/v1/chat/completions HTTP/1.1\r\nHost: a\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: ${32 * MIB}\r\n\r\n`,
  );
  await blocker.until("100 Continue");
  const waiting = send(gateway.port(), "/mcp", initialize(3 * MIB), MCP_HEADERS);
  let isAnswered = false;
  void waiting.then(() => {
    isAnswered = true;
  });
  await eventually("the message was rejected", async () => {
    await clock.advance(1_000);
    return isAnswered;
  });
  const { status, text, headers } = await waiting;
  assert.deepEqual([status, headers["x-gateway-error"]], [503, "overloaded"]);
  assert.equal((JSON.parse(text) as { error: { code: number } }).error.code, -32000);
  blocker.close();
});

test("responses that nobody reads are bounded in sum: further clients are cut off, and others are served [R50]", async (t) => {
  const piece = Buffer.alloc(64 * 1024, "x");
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/fast") {
      res.end("ok");
      return;
    }
    const write = (): void => {
      while (!res.destroyed && res.write(piece));
    };
    res.on("drain", write);
    write();
  });
  const yaml = `${gateways}routes: [{ backends: [{ host: "${backend.host}" }] }]\n`;
  const gateway = await gatewayFor(t, yaml, { memoryLimits: { streamBytes: MIB } });
  const sockets = Array.from({ length: 40 }, () => {
    const socket = connect(gateway.port(), "127.0.0.1");
    socket.pause();
    socket.on("error", () => undefined);
    socket.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    return socket;
  });
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  // A client that does not read does not notice that it was cut off: the access log does.
  await gateway.logged("path=/endless");
  assert.equal((await send(gateway.port(), "/fast", "", {}, "127.0.0.2")).status, 200);
});

test("one address cannot have all connections of a listener, and a trusted proxy is not counted [A30]", async (t) => {
  const { host } = await upstreams(t);
  const yaml = `${gateways}routes: [{ backends: [{ host: "${host}" }] }]\n`;
  const limits = { listenerLimits: { maxConnections: 100, maxConnectionsPerAddress: 5 } };
  const attempt = async (config: string): Promise<number> => {
    const gateway = await gatewayFor(t, config, limits);
    let closed = 0;
    const sockets = Array.from({ length: 20 }, () => {
      const socket = connect({ port: gateway.port(), host: "127.0.0.1", localAddress: "127.0.0.2" });
      socket.on("error", () => undefined);
      socket.on("close", () => {
        closed += 1;
      });
      socket.resume();
      return socket;
    });
    assert.equal((await send(gateway.port(), "/", "")).status, 200);
    if (config === yaml) await gateway.logged("one address has too many");
    if (config === yaml) await eventually("15 were closed", () => closed === 15);
    for (const socket of sockets) socket.destroy();
    return closed;
  };
  assert.equal(await attempt(yaml), 15);
  assert.equal(await attempt(`config: { trustedProxies: [127.0.0.0/8] }\n${yaml}`), 0);
});

test("a process with a heap of 300 MB survives large sessions and a full cache, and other routes go on [R50] [R53]", {
  timeout: 180_000,
}, async (t) => {
  const { host } = await upstreams(t);
  const container = `data:text/javascript,${encodeURIComponent("process.constrainedMemory = () => 600 * 1024 * 1024;")}`;
  const gateway = startGatewayProcess(
    t,
    ["-f", configFile(t, `config: { adminAddr: off }\n${gateways}${routes(host)}`)],
    { compiled: true, nodeFlags: ["--max-old-space-size=300", `--import=${container}`] },
  );
  const port = await gateway.port();
  const status = async (): Promise<number> => (await send(port, "/", "", {}, "127.0.0.9")).status;
  const rssMib = (): number =>
    Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.child.pid}/status`, "utf8"))?.[1] ?? 0) / 1024;

  const large = initialize(3.8 * MIB);
  for (let i = 0; i < 60; i += 10)
    await Promise.all(Array.from({ length: 10 }, () => send(port, "/mcp", large, MCP_HEADERS)));
  assert.equal(await status(), 200);

  const medium = initialize(60_000);
  const opened = await Promise.all(
    Array.from({ length: 300 }, async () => (await send(port, "/mcp", medium, MCP_HEADERS)).status),
  );
  assert.ok(opened.includes(200) && opened.includes(503));
  assert.equal((await send(port, "/mcp", medium, MCP_HEADERS, "127.0.0.9")).status, 200);
  assert.equal(await status(), 200);

  const json = { "content-type": "application/json" };
  for (let i = 0; i < 600; i += 20)
    await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        send(
          port,
          "/llm/v1/chat/completions",
          JSON.stringify({ model: "m", messages: [{ role: "user", content: `${i + n}` }] }),
          json,
        ),
      ),
    );
  assert.equal(await status(), 200);

  const held = Array.from({ length: 60 }, () => connect(port, "127.0.0.1"));
  t.after(() => {
    for (const socket of held) socket.destroy();
  });
  const part = Buffer.alloc(28 * MIB, "x");
  for (const socket of held) {
    socket.on("error", () => undefined);
    socket.write(`POST /llm/v1/chat/completions HTTP/1.1\r\nHost: a\r\ncontent-length: ${29 * MIB}\r\n\r\n`);
    socket.write(part);
  }
  for (let i = 0; i < 5; i++) assert.equal(await status(), 200);
  assert.equal(gateway.child.exitCode, null);
  assert.ok(rssMib() < 600, `${rssMib()} MiB`);
  assert.doesNotMatch(gateway.stdout(), /memory is full/);
});

test("the memory test itself passes for a few seconds of three vectors [R50]", { timeout: 180_000 }, async () => {
  const program = fileURLToPath(new URL("../../src/bin/gateway.js", import.meta.url));
  const vectors = ["held bodies", "capabilities of 2026-07-28", "event logs"].join(",");
  const args = [
    "--gateway",
    program,
    "--seconds",
    "2",
    "--all-seconds",
    "0",
    "--tolerance",
    "0.2",
    "--vectors",
    vectors,
  ];
  const child = spawn(process.execPath, [join(process.cwd(), "test/memory/run.mjs"), ...args], { stdio: "pipe" });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  const code = await new Promise((resolve) => child.on("exit", resolve));
  assert.equal(code, 0, output);
});
