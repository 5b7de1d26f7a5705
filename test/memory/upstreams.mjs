/**
 * The servers behind the gateway of the memory test, in a thread that sends their ports: one that never reads, one that never stops sending, an LLM
 * provider with large answers, one that compresses them, one that never ends its tool calls, an MCP server with large
 * results, one that floods its client with requests, and a WebSocket echo.
 */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { parentPort } from "node:worker_threads";
import { gzipSync } from "node:zlib";

const ANSWER_BYTES = 480 * 1024;
const RESULT_BYTES = 8 * 1024 * 1024;
const PIECE = Buffer.alloc(64 * 1024, "x");
const FILLER = "x".repeat(ANSWER_BYTES);
/** One buffer for all responses: thousands of them wait here while the gateway holds back. */
const RESULT = Buffer.from(`${JSON.stringify({ content: [{ type: "text", text: "x".repeat(RESULT_BYTES) }] })}}`);

const CHUNK = { id: "x", object: "chat.completion.chunk", model: "m" };
const chunkOf = (delta) =>
  `data: ${JSON.stringify({ ...CHUNK, choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
/** Responses that a few bytes become, and those of which much is sent. */
const ZIPPED = {
  bomb: gzipSync(chunkOf({ content: "x" }).repeat(80_000)),
  stream: gzipSync(Array.from({ length: 60_000 }, (_, i) => chunkOf({ content: (i * 7_919).toString(36) })).join("")),
  json: gzipSync(
    JSON.stringify({ choices: [{ message: { content: Array.from({ length: 1e6 }, (_, i) => i * 7_919).join(" ") } }] }),
  ),
};
/** A call begins, and its arguments are never complete. */
const openCall = (index) =>
  chunkOf({
    tool_calls: [
      { index, id: `c${index}`, type: "function", function: { name: "f", arguments: `{"a":"${"x".repeat(2_000)}` } },
    ],
  });
const QUESTIONS = ["ping", "sampling/createMessage", "x/unknown"].flatMap((method) =>
  Array.from({ length: 10 }, (_, i) =>
    JSON.stringify({ jsonrpc: "2.0", id: `${method}${i}${"y".repeat(900)}`, method, params: {} }),
  ),
);
const QUESTION_EVENTS = QUESTIONS.map((text) => `data: ${text}\n\n`).join("");

const LARGE_DESCRIPTION = Buffer.from(
  JSON.stringify({
    openapi: "3.1.0",
    info: {},
    paths: Object.fromEntries(
      Array.from({ length: 4_000 }, (_, i) => [
        `/${i}`,
        { get: { responses: { 200: { description: "x".repeat(3_800) } } } },
      ]),
    ),
  }),
);

const servers = {
  plain: createServer((req, res) => {
    req.resume();
    res.end("ok");
  }),
  deaf: createServer(() => undefined),
  endless: createServer((_req, res) => {
    const send = () => {
      while (!res.destroyed && res.write(PIECE));
    };
    res.on("drain", send);
    send();
  }),
  llm: createServer((req, res) => {
    req.resume();
    req.on("end", () => {
      res.setHeader("content-type", "application/json");
      res.end(
        JSON.stringify({
          id: "x",
          object: "chat.completion",
          model: "m",
          choices: [{ index: 0, message: { role: "assistant", content: FILLER }, finish_reason: "stop" }],
          usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        }),
      );
    });
  }),
  zipped: createServer((req, res) => {
    req.resume();
    req.on("end", () => {
      const name = Object.keys(ZIPPED)[Math.floor(Math.random() * 3)];
      res.setHeader("content-type", name === "json" ? "application/json" : "text/event-stream");
      res.setHeader("content-encoding", "gzip");
      res.end(ZIPPED[name]);
    });
  }),
  tools: createServer((req, res) => {
    req.resume();
    req.on("end", () => {
      res.setHeader("content-type", "text/event-stream");
      let index = 0;
      const send = () => {
        while (!res.destroyed && res.write(openCall(index++)));
      };
      res.on("drain", send);
      send();
    });
  }),
  mcp: createServer(answerMcp),
  asking: createServer(askMcp),
  api: createServer(answerApi),
  echo: openEcho(),
};
const ports = {};
for (const [name, server] of Object.entries(servers)) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  ports[name] = server.address().port;
}
parentPort.postMessage(ports);

function answerMcp(req, res) {
  if (req.method !== "POST") {
    res.statusCode = 405;
    res.end();
    return;
  }
  const chunks = [];
  req.on("data", (chunk) => chunks.push(chunk));
  req.on("end", () => {
    const message = JSON.parse(Buffer.concat(chunks).toString());
    if (message.id === undefined) {
      res.statusCode = 202;
      res.end();
      return;
    }
    res.setHeader("content-type", "application/json");
    if (message.method === "initialize") res.setHeader("mcp-session-id", String(Math.random()).slice(2));
    const answer = (result) => res.end(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${result}}`);
    const large = () => {
      const start = Buffer.from(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":`);
      res.setHeader("content-length", start.length + RESULT.length);
      res.write(start);
      res.end(RESULT);
    };
    if (message.method === "initialize")
      answer(
        JSON.stringify({
          protocolVersion: "2025-06-18",
          capabilities: { tools: {}, resources: { subscribe: true } },
          serverInfo: { name: "upstream", version: "1" },
        }),
      );
    else if (message.method === "tools/call") setTimeout(large, message.params.arguments?.delayMs ?? 0);
    else if (message.method === "tools/list") answer('{"tools":[{"name":"big","inputSchema":{"type":"object"}}]}');
    else answer("{}");
  });
}

/** Answers a call with requests, again and again, and does not accept the responses to them. */
function askMcp(req, res) {
  const chunks = [];
  req.on("data", (chunk) => chunks.push(chunk));
  req.on("end", () => {
    if (req.method !== "POST") {
      res.writeHead(405).end();
      return;
    }
    const { id, method } = JSON.parse(Buffer.concat(chunks).toString());
    if (method === undefined) return;
    if (id === undefined) res.writeHead(202).end();
    else if (method === "initialize") {
      res.writeHead(200, { "content-type": "application/json", "mcp-session-id": String(Math.random()).slice(2) });
      const serverInfo = { name: "asking", version: "1" };
      const result = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo };
      res.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    } else {
      res.writeHead(200, { "content-type": "text/event-stream" });
      const timer = setInterval(() => res.write(QUESTION_EVENTS), 1_000);
      res.write(QUESTION_EVENTS);
      res.on("close", () => clearInterval(timer));
    }
  });
}

/** An API whose responses stop before their end, and descriptions of almost the largest size. */
function answerApi(req, res) {
  req.resume();
  const operation = (name) => ({ get: { operationId: name, responses: {} } });
  const described = (paths) => JSON.stringify({ openapi: "3.1.0", info: {}, paths });
  if (req.url === "/small.json")
    res.end(described({ "/text": operation("text"), "/image": operation("image"), "/large": operation("large") }));
  else if (req.url === "/large.json") res.end(LARGE_DESCRIPTION);
  else if (req.url === "/broken.json") res.end(LARGE_DESCRIPTION.subarray(0, -1));
  else {
    res.setHeader("content-type", req.url === "/image" ? "image/png" : "application/json");
    if (req.url === "/large") res.end(RESULT.subarray(0, -1));
    else for (let bytes = 0; bytes < 31 * 1024 * 1024; bytes += PIECE.length) res.write(PIECE);
  }
}

function openEcho() {
  const server = createServer((_req, res) => res.end());
  server.on("upgrade", (req, socket) => {
    const accept = createHash("sha1")
      .update(`${req.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
      .digest("base64");
    socket.on("error", () => undefined);
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    socket.pipe(socket);
  });
  return server;
}
