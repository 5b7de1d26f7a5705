import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

const STREAMS = 1000;

test("memory and tasks answer while 1,000 streams are open, and show them", { timeout: 600_000 }, async () => {
  const open: ServerResponse[] = [];
  const backend = await startBackend((_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write("data: first\n\n");
    open.push(res);
  });
  const gateway = await startGateway(`
config: { logging: { level: "warn" } }
gateways: { default: { port: 0 } }
routes: [{ name: streams, backends: [{ host: "${backend.host}" }] }]
`);
  const sockets: Socket[] = [];
  // In small groups: a thousand connects at once would only test the accept queue.
  for (let i = 0; i < STREAMS; i += 50) {
    const group = Array.from({ length: 50 }, () => openStream(gateway.port()));
    sockets.push(...(await Promise.all(group)));
  }
  const tasks = (await (await fetch(`${gateway.adminUrl}/debug/tasks`)).json()) as {
    requestsInFlight: number;
    tasks: { kind: string; detail: { requests: number }; children: { kind: string }[] }[];
  };
  assert.equal(tasks.requestsInFlight, STREAMS);
  const listener = tasks.tasks.find(({ kind }) => kind === "listener");
  assert.equal(listener?.detail.requests, STREAMS);
  assert.equal(listener?.children.filter(({ kind }) => kind === "request").length, 200);
  const memory = (await (await fetch(`${gateway.adminUrl}/memory`)).json()) as {
    parts: { requests: { inFlight: number }; connections: { requests: number } };
  };
  assert.equal(memory.parts.requests.inFlight, STREAMS);
  assert.equal(memory.parts.connections.requests, STREAMS);
  for (const socket of sockets) socket.destroy();
  await gateway.close();
  await backend.close();
});

/** Resolves when the first event came. */
function openStream(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.on("error", reject);
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes("data: first")) resolve(socket);
    });
    socket.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
  });
}
