/**
 * An exception in any handler of the gateway ends at most the connection it was for. The process goes on, counts it,
 * logs it without what it quotes, and still ends with exit code 0 when it is asked to.
 */
import assert from "node:assert/strict";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { STAGES } from "../support/inject-fault.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor } from "../support/scenario.ts";

const PRELOAD = fileURLToPath(new URL("../support/inject-fault.js", import.meta.url));

const INITIALIZE = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "a", version: "1" } },
});

const plain = (prefix = ""): string[] => [
  `GET ${prefix}/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
  `POST ${prefix}/b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET ${prefix}/c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
];

/** One of each kind. A server that failed is not started again at once: each stage has one of its own. */
function requests(stage: number): string[] {
  return [
    ...plain(),
    "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x82\x01x",
    "GET /cut HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /hang HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    `POST /mcp/${stage} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: ${INITIALIZE.length}\r\n\r\n${INITIALIZE}`,
  ];
}

async function startFaulty(t: TestContext) {
  const backend = await backendFor(t, (req, res) => {
    if (req.url === "/cut") req.socket.destroy();
    else if (req.url !== "/hang") res.end("answer");
  });
  backend.server.on("upgrade", (_req, socket: Duplex) => {
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
    socket.once("data", () => socket.end("\x82\x01x"));
  });
  const args = ["-e", "console.log(1); console.error(2); process.exitCode = 3"];
  const child = JSON.stringify({ name: "one", stdio: { cmd: process.execPath, args } });
  const file = configFile(
    t,
    `config: { adminAddr: "127.0.0.1:0", drainTimeout: 5s }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
${Object.keys(STAGES)
  .map((_, i) => `  - { matches: [{ path: { exact: /mcp/${i} } }], backends: [{ mcp: { targets: [${child}] } }] }`)
  .join("\n")}
  - { matches: [{ path: { pathPrefix: /after } }], backends: [{ host: "${backend.host}" }], policies: { requestHeaderModifier: { set: { x-a: b } } } }
  - { backends: [{ host: "${backend.host}" }], policies: { requestHeaderModifier: { set: { x-a: b } }, timeout: { requestTimeout: 1s } } }
`,
  );
  return startGatewayProcess(t, ["-f", file], {
    compiled: true,
    nodeFlags: ["--import", PRELOAD],
    env: { INJECT_FAULTS: "yes" },
  });
}

async function countOf(adminUrl: string): Promise<number> {
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  const values = [...metrics.matchAll(/^gateway_unexpected_errors_total\{\S+ (\d+)/gm)];
  return values.reduce((sum, [, value]) => sum + Number(value), 0);
}

function send(port: number, bytes: string) {
  const client = openRawClient(port);
  client.socket.write(bytes, "latin1");
  return client.ended();
}

test("an exception in any place ends no process and holds no connection", async (t) => {
  const gateway = await startFaulty(t);
  const [port, adminUrl] = [await gateway.port(), await gateway.adminUrl()];
  await gateway.logged("started");
  for (const [i, stage] of Object.keys(STAGES).entries()) {
    const before = await countOf(adminUrl);
    gateway.child.kill("SIGWINCH");
    await gateway.logged(`armed: ${stage}`);
    await Promise.all(requests(i).map((bytes) => send(port, bytes))).catch((error) => {
      throw new Error(`${stage}: ${(error as Error).message}`);
    });
    await eventually(`${stage} is counted`, async () => (await countOf(adminUrl)) > before);
    // Below a path without a time limit: a busy machine answers when it can.
    for (const bytes of plain("/after")) assert.match((await send(port, bytes)).text, /^HTTP\/1\.1 200/, stage);
  }
  gateway.child.kill("SIGTERM");
  const exit = await gateway.exited;
  assert.deepEqual([exit.code, exit.signal, exit.stderr], [0, null, ""]);
  assert.match(exit.stdout, /unexpected error source=\w+ .*injected/);
  assert.doesNotMatch(exit.stdout, /secret-of-a-client/);
});
