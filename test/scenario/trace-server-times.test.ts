/**
 * `upstreamDuration` and `upstreamMs` are the time of the MCP server, from the request to the result, for each target,
 * and slow calls keep the order of trace events in spec 6. The clock moves only when a test moves it.
 */
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import type { JsonObject, TraceEvent } from "../../src/record/trace/record.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type Json, type OpenStream, rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { armTrace, messagesOf, typesOf } from "../support/trace.ts";

/** Forwards each line to the test's server and writes the response as a line. */
const PIPE_SERVER = `
const { request } = require("node:http");
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  request(process.argv[1], { method: "POST" }, (response) => {
    let text = "";
    response.on("data", (chunk) => { text += chunk; });
    response.on("end", () => text !== "" && process.stdout.write(text + "\\n"));
  }).end(line);
});
`;
const ABOUT = { capabilities: { tools: {} }, serverInfo: { name: "b", version: "1" } };
const TOOL = { name: "call", inputSchema: { type: "object" } };

/** Monotonic milliseconds. Only tests move it; timers use the real time. */
let nowMs = 1_000;
const clock: Clock = { ...systemClock, monotonicMs: () => nowMs };

/** A call that a server received and has not answered. */
interface HeldCall {
  readonly server: string;
  answer(): void;
}
const held: HeldCall[] = [];
let arrived: () => void = () => undefined;
const streams = new Map<string, ServerResponse>();
let holds: (message: Json) => boolean = () => false;
let gateway: TestGateway;

/** The paths are `/<transport>-<version>`; `/early-…` sends the head of an event stream before the result. */
const backend = createServer({ keepAliveTimeout: 0 }, (req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    const server = (req.url ?? "").slice(1);
    if (req.method === "GET" && server.startsWith("sse")) {
      streams.set(server, res.writeHead(200, { "content-type": "text/event-stream" }));
      res.write(`event: endpoint\ndata: /${server}\n\n`);
    } else if (req.method !== "POST") res.writeHead(405).end();
    else respond(server, JSON.parse(Buffer.concat(chunks).toString() || "{}"), res);
  });
});

function respond(server: string, message: Json, res: ServerResponse): void {
  const isEarly = server.startsWith("early");
  const result = server === "openapi" ? { ok: true } : resultOf(server, message);
  const text =
    server === "openapi" ? JSON.stringify(result) : JSON.stringify({ jsonrpc: "2.0", id: message.id, ...result });
  if (result === undefined) {
    res.writeHead(202).end();
    return;
  }
  if (server.startsWith("sse")) res.writeHead(202).end();
  else if (isEarly) res.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
  const answer = (): void => {
    if (server.startsWith("sse")) streams.get(server)?.write(`data: ${text}\n\n`);
    else if (isEarly) res.end(`data: ${text}\n\n`);
    else res.writeHead(200, { "content-type": "application/json" }).end(text);
  };
  if (server !== "openapi" && !holds(message)) answer();
  else {
    held.push({ server, answer });
    arrived();
  }
}

function resultOf(server: string, { id, method, params }: Json): object | undefined {
  const isModern = server.endsWith("modern");
  if (id === undefined) return undefined;
  if (method === "initialize" && !isModern) return { result: { protocolVersion: params.protocolVersion, ...ABOUT } };
  const complete = isModern ? { resultType: "complete", ttlMs: 0, cacheScope: "private" } : {};
  if (method === "server/discover" && isModern)
    return { result: { supportedVersions: ["2026-07-28"], ...ABOUT, ...complete } };
  if (method === "tools/list") return { result: { tools: [TOOL], ...complete } };
  if (method === "tools/call") return { result: { content: [{ type: "text", text: "done" }], ...complete } };
  return { error: { code: -32601, message: "Method not found" } };
}

before(async () => {
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const document = {
    openapi: "3.0.0",
    info: { title: "t", version: "1" },
    servers: [{ url }],
    paths: { "/openapi": { post: { operationId: "call", responses: { 200: { description: "ok" } } } } },
  };
  const stdio = (server: string) => ({
    stdio: { cmd: process.execPath, args: ["-e", PIPE_SERVER, `${url}/${server}`] },
  });
  const routes: Record<string, object[]> = {
    "stdio-legacy": [stdio("stdio-legacy")],
    "stdio-modern": [stdio("stdio-modern")],
    "http-legacy": [{ mcp: { url: `${url}/http-legacy` } }],
    "http-modern": [{ mcp: { url: `${url}/http-modern` } }],
    "early-legacy": [{ mcp: { url: `${url}/early-legacy` } }],
    "early-modern": [{ mcp: { url: `${url}/early-modern` } }],
    sse: [{ sse: { url: `${url}/sse` } }],
    openapi: [{ openapi: { file: "api.json" } }],
    both: [stdio("stdio-both"), { mcp: { url: `${url}/http-both` } }],
  };
  const config = {
    gateways: { default: { port: 0 } },
    routes: Object.entries(routes).map(([name, targets]) => ({
      matches: [{ path: { pathPrefix: `/${name}` } }],
      backends: [{ mcp: { targets: targets.map((target, i) => ({ name: `t${i}`, ...target })) } }],
    })),
  };
  gateway = await startGateway(JSON.stringify(config), { clock, files: { "api.json": JSON.stringify(document) } });
});
after(async () => {
  await gateway?.close();
  backend.closeAllConnections();
  await new Promise((resolve) => backend.close(resolve));
});

async function heldCalls(count: number): Promise<HeldCall[]> {
  while (held.length < count)
    await new Promise<void>((resolve) => {
      arrived = resolve;
    });
  return held.splice(0);
}

const ORDER = [
  "backendCallStart",
  "backendCallResult",
  "responseSnapshot raw response",
  "responseSnapshot backend response ready",
  "responseSnapshot final response",
  "bodySnapshot response",
  "requestFinished",
];

interface Durations {
  readonly stage: string;
  readonly upstream: string;
  readonly processing: string;
}

function durations(events: readonly TraceEvent[]): Durations[] {
  return messagesOf(events, "responseSnapshot").map(({ stage, requestState }) => {
    const proxy = requestState.proxy as JsonObject;
    return {
      stage,
      upstream: String(proxy.upstreamDuration),
      processing: String(proxy.responseProcessingDuration),
    };
  });
}

async function recordOf(id: string): Promise<{ upstreamMs: number | null; durationMs: number }> {
  const response = await fetch(`${gateway.adminUrl}/debug/requests?id=${id}`);
  return ((await response.json()) as Json).requests[0];
}

interface SentCall {
  /** Resolves when the gateway has sent the response head, which it does for legacy clients before the result. */
  head(): Promise<unknown>;
  readonly ended: Promise<unknown>;
}

/** Opens the session of a legacy client, or the server's connection for a modern one, and returns the call. */
async function ready(path: string, client: "legacy" | "modern", method: string, id: string): Promise<() => SentCall> {
  holds = () => false;
  const url = `${gateway.url()}/${path}`;
  const params = method === "tools/call" ? { name: "call", arguments: {} } : {};
  const headers = { "x-request-id": id };
  if (client === "modern") {
    await modernPost(url, "tools/list");
    return () => {
      const ended = modernPost(url, method, params, { headers });
      return { head: () => Promise.resolve(), ended };
    };
  }
  const legacy = rawClient(url);
  await legacy.initialize();
  return () => {
    const opened = legacy.stream({ jsonrpc: "2.0", id: 9, method, params }, headers);
    return { head: () => opened, ended: opened.then((stream) => stream.ended) };
  };
}

const traceOfId = (id: string) =>
  armTrace(gateway, `?expression=${encodeURIComponent(`request.headers["x-request-id"] == "${id}"`)}`);

const kinds = [
  "stdio-legacy",
  "stdio-modern",
  "http-legacy",
  "http-modern",
  "early-legacy",
  "early-modern",
  "sse",
  "openapi",
];
for (const kind of kinds)
  for (const client of ["legacy", "modern"] as const)
    test(`${kind}, ${client} client: the time of a slow call is the server's`, async () => {
      const id = `${kind}-${client}`;
      const call = await ready(kind, client, "tools/call", id);
      holds = ({ method }) => method === "tools/call";
      const trace = await traceOfId(id);
      const sent = call();
      const [one] = await heldCalls(1);
      nowMs += 5_000;
      await sent.head();
      nowMs += 2_000;
      one?.answer();
      await sent.ended;
      const events = await trace.events;
      assert.deepEqual(
        typesOf(events).filter((type) => ORDER.includes(type)),
        ORDER,
      );
      const expected = { upstream: "7.000000s", processing: "0.000000s" };
      assert.deepEqual(durations(events), [
        { stage: "raw response", ...expected },
        { stage: "backend response ready", ...expected },
        { stage: "final response", ...expected },
      ]);
      const { upstreamMs, durationMs } = await recordOf(id);
      assert.deepEqual([upstreamMs, durationMs], [7_000, 7_000]);
    });

for (const client of ["legacy", "modern"] as const)
  test(`several servers, ${client} client: each has its own time`, async () => {
    const id = `both-${client}`;
    const call = await ready("both", client, "tools/list", id);
    holds = ({ method }) => method === "tools/list";
    const trace = await traceOfId(id);
    const sent = call();
    const calls = await heldCalls(2);
    nowMs += 3_000;
    await sent.head();
    calls.find(({ server }) => server === "http-both")?.answer();
    await trace.shows(/"stage":"raw response"/);
    nowMs += 4_000;
    calls.find(({ server }) => server === "stdio-both")?.answer();
    await sent.ended;
    const events = await trace.events;
    assert.deepEqual(
      durations(events).map(({ stage, upstream }) => [stage, upstream]),
      [
        ["raw response", "3.000000s"],
        ["raw response", "7.000000s"],
        ["backend response ready", "7.000000s"],
        ["final response", "7.000000s"],
      ],
    );
    const results = events.filter(({ message }) => message.type === "backendCallResult");
    assert.deepEqual(
      results.map(({ eventStart, eventEnd }) => eventEnd - (eventStart ?? 0)),
      [3_000_000, 7_000_000],
    );
    assert.equal((await recordOf(id)).upstreamMs, 7_000);
  });

test("the record of a call that is not traced has the time of the server", async () => {
  const call = await ready("http-legacy", "legacy", "tools/call", "plain");
  holds = ({ method }) => method === "tools/call";
  const sent = call();
  const [one] = await heldCalls(1);
  nowMs += 2_000;
  await sent.head();
  nowMs += 1_000;
  one?.answer();
  await sent.ended;
  assert.equal((await recordOf("plain")).upstreamMs, 3_000);
});

test("a call that the client abandons has the time until then", async () => {
  const call = await ready("http-legacy", "legacy", "tools/call", "left");
  holds = ({ method }) => method === "tools/call";
  const trace = await traceOfId("left");
  const sent = call();
  const [one] = await heldCalls(1);
  nowMs += 2_000;
  const stream = (await sent.head()) as OpenStream;
  nowMs += 4_000;
  stream.close();
  const events = await trace.events;
  assert.deepEqual(typesOf(events).slice(-3), [
    "responseSnapshot final response",
    "bodySnapshot response",
    "requestFinished",
  ]);
  assert.equal((await recordOf("left")).upstreamMs, 6_000);
  one?.answer();
});
