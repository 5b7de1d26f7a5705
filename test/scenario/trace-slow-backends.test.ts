/**
 * `backendCallResult` and `raw response` record only what the backend did (spec 6), also if the gateway sends its own
 * head first. Each kind of backend responds slowly, with an error, in parts, or not at all, and keeps a record.
 */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { armTrace, messagesOf, typesOf } from "../support/trace.ts";

/** Forwards each line to the recorder and writes the response as a line. A broken connection ends the process. */
const PIPE_SERVER = `
require("node:readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const response = await fetch(process.argv[1], { method: "POST", body: line }).catch(() => process.exit(3));
  const text = await response.text().catch(() => process.exit(3));
  if (text !== "") process.stdout.write(text + "\\n");
});
`;
const KINDS = ["stdio", "http", "sse", "openapi", "ai", "host"] as const;
type Kind = (typeof KINDS)[number];
const BEHAVIORS = ["slow", "failing", "streaming", "reset"] as const;
type Behavior = (typeof BEHAVIORS)[number];

interface Recorded {
  readonly behavior: Behavior;
  /** Undefined if the connection was reset before a response head was sent. */
  status: number | undefined;
}

let behavior: Behavior = "slow";
/** The calls that the backend received. */
const recorded: Recorded[] = [];
/** Resolves when the test lets a slow backend respond. */
let released: Promise<void>;
let release: () => void;
let sseStream: ServerResponse | undefined;
let gateway: TestGateway;

const backend = createServer({ keepAliveTimeout: 0 }, (req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => void respond(req, res, Buffer.concat(chunks).toString()));
});

async function respond(req: IncomingMessage, res: ServerResponse, text: string): Promise<void> {
  const path = req.url ?? "";
  const isSse = path.startsWith("/sse");
  if (req.method === "GET" && isSse) {
    sseStream = res.writeHead(200, { "content-type": "text/event-stream" });
    res.write("event: endpoint\ndata: /sse/messages\n\n");
    return;
  }
  const message = path === "/call" || path.startsWith("/v1") ? undefined : JSON.parse(text || "{}");
  const isCall = message === undefined || message.method === "tools/call";
  if (!isCall) {
    const result = message.id === undefined ? undefined : handshakeResult(message);
    if (isSse) sendSse(res, result);
    else if (result === undefined) res.writeHead(202).end();
    else res.writeHead(200, { "content-type": "application/json" }).end(result);
    return;
  }
  const record: Recorded = { behavior, status: undefined };
  recorded.push(record);
  if (behavior === "slow") await released;
  if (behavior === "reset") {
    res.destroy();
    return;
  }
  const id = message?.id ?? null;
  const answer =
    message === undefined
      ? { id: "c", model: "m", choices: [{ index: 0, message: { role: "assistant", content: "x" } }] }
      : { jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "done" }] } };
  // Over SSE, the status belongs to the POST and the response comes on the stream.
  record.status = isSse ? 202 : behavior === "failing" ? 500 : 200;
  if (isSse) {
    sendSse(res, behavior === "failing" ? rpcError(id) : JSON.stringify(answer));
    return;
  }
  const body = behavior === "failing" ? rpcError(id) : JSON.stringify(answer);
  res.writeHead(record.status, { "content-type": "application/json", "x-from": "backend" });
  if (behavior === "streaming") res.write(body.slice(0, 10));
  res.end(behavior === "streaming" ? body.slice(10) : body);
}

function sendSse(res: ServerResponse, message: string | undefined): void {
  res.writeHead(202, { "x-from": "backend" }).end();
  if (message !== undefined) sseStream?.write(`event: message\ndata: ${message}\n\n`);
}

function rpcError(id: unknown): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32000, message: "failed" } });
}

function handshakeResult({ id, method, params }: { id: unknown; method: string; params: { protocolVersion: string } }) {
  const about = { capabilities: { tools: {} }, serverInfo: { name: "b", version: "1" } };
  const tools = [{ name: "call", inputSchema: { type: "object" } }];
  const result = method === "initialize" ? { protocolVersion: params.protocolVersion, ...about } : { tools };
  return JSON.stringify({ jsonrpc: "2.0", id, result });
}

before(async () => {
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const url = `http://${host}`;
  const document = {
    openapi: "3.0.0",
    info: { title: "t", version: "1" },
    servers: [{ url }],
    paths: { "/call": { post: { operationId: "call", responses: { 200: { description: "ok" } } } } },
  };
  const targets = {
    stdio: { stdio: { cmd: process.execPath, args: ["-e", PIPE_SERVER, `${url}/stdio`] } },
    http: { mcp: { url: `${url}/http` } },
    sse: { sse: { url: `${url}/sse` } },
    openapi: { openapi: { file: "api.json" } },
  };
  const routes = [
    ...Object.entries(targets).map(([name, target]) => ({
      matches: [{ path: { pathPrefix: `/${name}` } }],
      backends: [{ mcp: { targets: [{ name, ...target }] } }],
    })),
    {
      matches: [{ path: { pathPrefix: "/ai" } }],
      backends: [{ ai: { provider: { openAI: {} }, auth: { key: "k" }, hostOverride: host } }],
    },
    {
      matches: [{ path: { pathPrefix: "/host" } }],
      policies: { urlRewrite: { path: { full: "/call" } } },
      backends: [{ host }],
    },
  ];
  gateway = await startGateway(JSON.stringify({ gateways: { default: { port: 0 } }, routes }), {
    files: { "api.json": JSON.stringify(document) },
  });
});
after(async () => {
  await gateway?.close();
  backend.closeAllConnections();
  await new Promise((resolve) => backend.close(resolve));
});

/** Sends a call and lets a slow backend respond only after the client has received the gateway's head, if it does. */
async function send(kind: Kind, id: string, client: ReturnType<typeof rawClient>): Promise<void> {
  const headers = { "x-request-id": id };
  if (kind === "ai" || kind === "host") {
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] });
    const path = kind === "ai" ? "/ai/v1/chat/completions" : "/host";
    const sent = fetch(`${gateway.url()}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
    });
    release();
    await (await sent).text();
    return;
  }
  const call = { jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "call", arguments: {} } };
  // The head arrives although the server has not responded.
  const stream = await client.stream(call, headers);
  release();
  await stream.ended;
}

for (const kind of KINDS)
  for (const how of BEHAVIORS)
    test(`${kind}, ${how}: the trace has the backend's own responses`, async () => {
      behavior = how;
      released = new Promise((resolve) => {
        release = resolve;
      });
      const client = rawClient(`${gateway.url()}/${kind}`);
      if (kind !== "ai" && kind !== "host") {
        await client.initialize();
        await client.post({ jsonrpc: "2.0", method: "notifications/initialized" });
      }
      recorded.length = 0;
      const id = `${kind}-${how}`;
      const expression = encodeURIComponent(`request.headers["x-request-id"] == "${id}"`);
      const trace = await armTrace(gateway, `?expression=${expression}`);
      await send(kind, id, client);
      const events = await trace.events;
      const results = messagesOf(events, "backendCallResult");
      // A pipe has no status, so a message that arrived counts as 200.
      const expected = recorded.map(({ status }) =>
        kind === "stdio" && status !== undefined ? 200 : (status ?? null),
      );
      assert.deepEqual(
        results.map(({ status }) => status),
        expected,
        JSON.stringify(results),
      );
      for (const [i, { status, error }] of results.entries())
        assert.equal(error === null, status !== null, `result ${i}: ${error}`);
      if (how === "slow" && kind !== "ai" && kind !== "host") {
        const order = typesOf(events).filter((type) =>
          /^(?:backendCallResult|responseSnapshot (?:raw|final))/.test(type),
        );
        assert.deepEqual(order, [
          "backendCallResult",
          "responseSnapshot raw response",
          "responseSnapshot final response",
        ]);
      }
      const raw = messagesOf(events, "responseSnapshot").filter(({ stage }) => stage === "raw response");
      assert.equal(raw.length, expected.filter((status) => status !== null).length);
      for (const { requestState } of raw) {
        const { code, headers } = requestState.response as { code: number; headers: Record<string, unknown> };
        assert.equal(code, expected[0]);
        assert.equal("x-from" in headers, kind !== "stdio", JSON.stringify(headers));
      }
    });
