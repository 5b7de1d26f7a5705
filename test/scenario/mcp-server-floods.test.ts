/**
 * MCP servers that send thousands of requests in the stream of one call. Checks the number of connections for the
 * responses, the error that the client receives, and that a cancellation overtakes the waiting responses.
 */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { gatewayFor } from "../support/scenario.ts";

interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly result?: unknown;
  readonly error?: unknown;
}

interface FloodServer {
  readonly target: object;
  /** The messages without a response that the server received. */
  readonly received: Message[];
  /** The largest number of POSTs with responses to the server's requests at the same time. */
  mostAnswers(): number;
  /** Accepts the responses that it has received, and all later ones at once. */
  accept(): void;
}

/** A server that sends `requests` before the result of a call, and accepts no response until `accept` is called. */
async function floodServer(t: TestContext, transport: "http" | "sse", requests: readonly object[]) {
  const received: Message[] = [];
  const held = new Set<ServerResponse>();
  let mostAnswers = 0;
  let isAccepting = false;
  let stream: ServerResponse | undefined;
  const initialized = (id: unknown): string =>
    JSON.stringify({
      jsonrpc: "2.0",
      id,
      result: {
        protocolVersion: "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name: "flood", version: "1" },
      },
    });
  const texts = requests.map((request, i) => JSON.stringify({ jsonrpc: "2.0", id: `q${i}`, ...request }));
  const answer = (message: Message, res: ServerResponse): void => {
    const { id, method } = message;
    if (method === "server/discover") res.writeHead(400).end();
    else if (id !== undefined && method !== undefined) {
      const flood = texts.map((text) => `event: message\ndata: ${text}\n\n`).join("");
      const out = transport === "sse" ? (stream as ServerResponse) : res;
      if (transport === "sse") res.writeHead(202).end();
      else res.writeHead(200, { "content-type": "text/event-stream", "mcp-session-id": "s" });
      if (method === "initialize") out.write(`event: message\ndata: ${initialized(id)}\n\n`);
      else out.write(flood);
      if (transport === "http" && method === "initialize") res.end();
    } else {
      received.push(message);
      if (method !== undefined || isAccepting) {
        res.writeHead(202).end();
        return;
      }
      held.add(res);
      res.on("close", () => held.delete(res));
      mostAnswers = Math.max(mostAnswers, held.size);
    }
  };
  const server = createServer((req: IncomingMessage, res: ServerResponse) => {
    if (req.method === "GET" && transport === "sse") {
      stream = res.writeHead(200, { "content-type": "text/event-stream" });
      res.write("event: endpoint\ndata: /post\n\n");
      return;
    }
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      if (req.method !== "POST") res.writeHead(405).end();
      else answer(JSON.parse(Buffer.concat(chunks).toString()) as Message, res);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
  const target = { name: "flood", ...(transport === "sse" ? { sse: { url } } : { mcp: { url } }) };
  const flood: FloodServer = {
    target,
    received,
    mostAnswers: () => mostAnswers,
    accept() {
      isAccepting = true;
      for (const res of held) res.writeHead(202).end();
    },
  };
  return flood;
}

const KINDS: Readonly<Record<string, object>> = {
  pings: { method: "ping" },
  "unknown requests": { method: "x/unknown", params: {} },
  "sampling requests": { method: "sampling/createMessage", params: { messages: [], maxTokens: 1 } },
  "requests that cannot be read": { method: "roots/list", params: 1 },
};
const FLOOD = 5_000;

for (const transport of ["http", "sse"] as const)
  for (const [kind, request] of Object.entries(KINDS))
    test(`${kind} over ${transport}, more than fit: 16 POSTs at once, and the server is disconnected`, async (t) => {
      const server = await floodServer(t, transport, new Array(FLOOD).fill(request));
      const gateway = await gatewayFor(t, mcpConfig([server.target]));
      const client = rawClient(`${gateway.url()}/mcp`);
      await client.initialize();
      const { error } = await client.call("any");
      assert.match(error.message, /target "flood" was disconnected because it sends requests faster than it accepts/);
      assert.ok(server.mostAnswers() <= 16, `${server.mostAnswers()} POSTs at once`);
      assert.ok(gateway.log().some((line) => line.includes("MCP server failed") && line.includes("faster than")));
    });

for (const transport of ["http", "sse"] as const)
  test(`a cancellation over ${transport} passes 500 responses that wait, which are then sent in order`, async (t) => {
    const server = await floodServer(t, transport, new Array(500).fill(KINDS.pings));
    const gateway = await gatewayFor(t, mcpConfig([server.target]));
    const client = rawClient(`${gateway.url()}/mcp`);
    await client.initialize();
    const call = client.stream({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "any" } });
    const answers = () => server.received.filter(({ method }) => method === undefined);
    await eventually("the server has 16 responses", () => answers().length === 16);
    await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } });
    await eventually("the cancellation arrives", () =>
      server.received.some(({ method }) => method === "notifications/cancelled"),
    );
    assert.equal(answers().length, 16);
    assert.equal(server.mostAnswers(), 16);
    server.accept();
    await eventually("all responses arrive", () => answers().length === 500);
    assert.deepEqual(new Set(answers().map(({ id }) => id)).size, 500);
    (await call).close();
  });
