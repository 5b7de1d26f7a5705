/**
 * The servers behind the gateway of the memory test, in a thread that sends their ports: one that never reads, one that never stops sending, an LLM
 * provider with large answers, an MCP server with large results, and a WebSocket echo.
 */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { parentPort } from "node:worker_threads";

const ANSWER_BYTES = 480 * 1024;
const RESULT_BYTES = 8 * 1024 * 1024;
const PIECE = Buffer.alloc(64 * 1024, "x");
const FILLER = "x".repeat(ANSWER_BYTES);
/** One buffer for all responses: thousands of them wait here while the gateway holds back. */
const RESULT = Buffer.from(`${JSON.stringify({ content: [{ type: "text", text: "x".repeat(RESULT_BYTES) }] })}}`);

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
  mcp: createServer(answerMcp),
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
