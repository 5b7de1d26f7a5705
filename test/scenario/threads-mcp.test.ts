import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { threadOf } from "../../src/app/threads/forwarding.ts";
import { eventually } from "../support/eventually.ts";
import { rawClient } from "../support/mcp/client.ts";
import { childrenOf } from "../support/mcp/processes.ts";
import { HELLO_ROUTE, sendMany, startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;
const newer = node ?? "";

/** Forty at once: a busy machine must not make it a test of time limits. */
async function inBatches<One, Result>(all: readonly One[], run: (one: One) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = [];
  for (let i = 0; i < all.length; i += 40) results.push(...(await Promise.all(all.slice(i, i + 40).map(run))));
  return results;
}

/** An MCP server over HTTP that tells each session which one it is. */
async function startWhoami(t: TestContext): Promise<string> {
  let sessions = 0;
  const server: Server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += String(chunk);
    });
    request.on("end", () => {
      const message = body === "" ? {} : (JSON.parse(body) as { id?: unknown; method?: string });
      const answer = (result: object, headers: Record<string, string> = {}): void => {
        response.writeHead(200, { "content-type": "application/json", ...headers });
        response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result }));
      };
      if (message.method === "initialize") {
        const capabilities = { tools: {} };
        const info = { protocolVersion: "2025-11-25", capabilities, serverInfo: { name: "whoami", version: "1" } };
        answer(info, { "mcp-session-id": `upstream-${++sessions}` });
      } else if (message.method === "tools/call")
        answer({ content: [{ type: "text", text: String(request.headers["mcp-session-id"]) }] });
      else if (message.method === "tools/list")
        answer({ tools: [{ name: "whoami", inputSchema: { type: "object" } }] });
      else {
        response.writeHead(request.method === "GET" ? 405 : 202);
        response.end();
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}

test("200 MCP sessions over 4 threads: every call reaches its session, none crosses", { skip }, async (t) => {
  const upstream = await startWhoami(t);
  const routes = ["a", "b"].map(
    (name) => `
  - gateways: [main]
    name: mcp-${name}
    matches: [{ path: { pathPrefix: /${name} } }]
    backends: [{ mcp: { targets: [{ name: who, mcp: { url: "${upstream}" } }] } }]
`,
  );
  const gateway = await startThreaded(t, threadedConfig(4, routes.join("")), newer);
  const clients = Array.from({ length: 200 }, (_, i) => rawClient(`${gateway.url}/${i % 2 === 0 ? "a" : "b"}`));
  const opened = await inBatches(clients, (client) => client.initialize());
  // A server that cannot be reached is told with status 200 too: without a session, the message says why.
  const refused = opened.filter(({ status, headers }) => status !== 200 || !headers.has("mcp-session-id"));
  assert.deepEqual(
    refused.map(({ status, message }) => `${status} ${JSON.stringify(message)}`),
    [],
  );
  assert.equal(new Set(clients.map(({ sessionId }) => sessionId)).size, 200);
  const who = async (client: (typeof clients)[number]): Promise<string> =>
    (await client.call("whoami")).result.content[0].text as string;
  const first = await inBatches(clients, who);
  assert.equal(new Set(first).size, 200);
  for (let round = 0; round < 4; round++) assert.deepEqual(await inBatches(clients, who), first);

  const dump = await gateway.json<{ backends: { sessions: number }[] }>("/config_dump");
  assert.equal(
    dump.backends.reduce((sum, { sessions }) => sum + sessions, 0),
    200,
  );
  const recent = (await gateway.json("/debug/requests?limit=1")) as {
    requests: { listener: string; source: object }[];
  };
  assert.equal(recent.requests[0]?.listener, "main");
  assert.deepEqual(Object.keys(recent.requests[0]?.source ?? {}), ["address", "port"]);
  // Sessions of one route are nothing to the other.
  const [stranger] = clients;
  const wrong = rawClient(`${gateway.url}/b`);
  wrong.sessionId = stranger?.sessionId;
  assert.equal((await wrong.post({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} })).status, 404);
  await inBatches(clients, (client) => client.delete());
});

test("a thread dies: others never notice, its connections are cut once, it is replaced, and its children end", {
  skip,
}, async (t) => {
  // The thread that is ended is the second: the route must be its own.
  const name = ["stdio", "stdio-1", "stdio-2", "stdio-3"].find((one) => threadOf(one, 2) === 2) ?? "";
  const stdio = `
  - gateways: [main]
    name: ${name}
    matches: [{ path: { pathPrefix: /stdio } }]
    backends: [{ mcp: { targets: [{ name: cat, stdio: { cmd: sleep, args: ["1000"] } }] } }]
`;
  const gateway = await startThreaded(t, threadedConfig(2, HELLO_ROUTE + stdio), newer);
  // It never answers: its child lives in the thread that owns the route.
  void rawClient(`${gateway.url}/stdio`)
    .initialize()
    .catch(() => undefined);
  const pid = gateway.process.child.pid ?? 0;
  await eventually("the child runs", () => childrenOf(pid, "sleep").length === 1);
  const { port } = new URL(gateway.url);
  const open = async (): Promise<Socket> => {
    const socket = connect(Number(port), "127.0.0.1");
    socket.on("error", () => undefined);
    await ask(socket);
    return socket;
  };
  const sockets = await Promise.all(Array.from({ length: 40 }, open));
  const closed = new Set<Socket>();
  for (const socket of sockets) socket.once("close", () => closed.add(socket));
  gateway.process.child.kill("SIGWINCH");
  await gateway.process.logged("worker thread died; replacing it");
  // The other thread takes new connections, and none waits until the dead one is replaced: that takes longer by far.
  const isReplaced = (): boolean => gateway.process.stdout().includes("worker thread replaced");
  const answers: string[] = [];
  for (let i = 0; i < 5; i++) {
    const isBefore = !isReplaced();
    (await open()).destroy();
    if (isBefore) answers.push(isReplaced() ? "late" : "at once");
  }
  assert.ok(answers.length === 0 || answers.includes("at once"), answers.join());
  await eventually("the child of the dead thread has ended", () => childrenOf(pid, "sleep").length === 0);
  await gateway.process.logged("worker thread replaced");
  assert.ok(closed.size > 0 && closed.size < 40, `${closed.size} of 40 were cut`);
  for (const socket of sockets) if (!closed.has(socket)) await ask(socket);
  const { statuses } = await sendMany(`${gateway.url}/hello`, 400, 40);
  assert.deepEqual(statuses, { 200: 400 });
  const { threads } = await gateway.json<{ threads: object[] }>("/memory");
  assert.equal(threads.length, 2);
  for (const socket of sockets) socket.destroy();
});

async function ask(socket: Socket): Promise<void> {
  socket.write("GET /hello HTTP/1.1\r\nhost: x\r\n\r\n");
  const [chunk] = (await once(socket, "data")) as [Buffer];
  assert.match(String(chunk), /^HTTP\/1\.1 200 /);
}
