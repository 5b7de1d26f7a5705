/**
 * A server that stands in for somebody else's, in a process of its own so that it can be killed and stopped:
 * `node stand-in.mjs web|mcp|llm|keys <port>`. Each answer repeats what was asked, so that a mixed-up or cut answer is
 * noticed. The parent changes its mood by messages.
 */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { resultOf } from "./mcp-results.mjs";

const [, , role, port] = process.argv;
let mood = "answers";
let keys = "";
process.on("message", (message) => {
  mood = message.mood ?? mood;
  keys = message.keys ?? keys;
});
process.on("disconnect", () => process.exit(0));

const ROLES = { web, mcp, llm, keys: (_asked, res) => json(res, keys) };
const server = createServer((req, res) => {
  const parts = [];
  req.on("error", () => undefined);
  req.on("data", (part) => parts.push(part));
  req.on("end", () => ROLES[role](Buffer.concat(parts), res, req));
});
server.on("upgrade", (req, socket, head) => {
  const accept = createHash("sha1").update(`${req.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept.digest("base64")}\r\n\r\n`,
  );
  socket.on("error", () => socket.destroy());
  // What comes goes back: the gateway does not look inside.
  socket.write(head);
  socket.pipe(socket);
});
server.listen(Number(port), "127.0.0.1", () => process.send?.("listening"));

/** `/stream?lines=n`: n numbered lines in many writes; else the digest of the body. Both carry the nonce. */
function web(asked, res, req) {
  const url = new URL(req.url, "http://web");
  const nonce = url.searchParams.get("nonce");
  if (!url.pathname.endsWith("/stream")) {
    json(res, JSON.stringify({ nonce, digest: createHash("sha256").update(asked).digest("hex") }));
    return;
  }
  const lines = Number(url.searchParams.get("lines"));
  let line = 0;
  const write = () => {
    if (res.destroyed) return;
    for (let i = 0; i < 20 && line < lines; i++) res.write(`${nonce}:${line++}\n`);
    if (line < lines) setTimeout(write, 1);
    else res.end();
  };
  res.writeHead(200, { "content-type": "text/plain" });
  write();
}

function mcp(asked, res, req) {
  if (req.method !== "POST") {
    res.writeHead(req.method === "DELETE" ? 200 : 405).end();
    return;
  }
  const { id, method, params } = JSON.parse(asked.toString());
  if (id === undefined) res.writeHead(202).end();
  else json(res, JSON.stringify({ jsonrpc: "2.0", id, result: resultOf(method, params) }), { "mcp-session-id": "one" });
}

/** Says the last message again: whole, or word by word. */
function llm(asked, res) {
  if (mood === "hangs") return;
  if (mood === "nonsense") {
    res.writeHead(200, { "content-type": "application/json" }).end("<html>it works</html>");
    return;
  }
  if (mood !== "answers") {
    res.writeHead(Number(mood), { "content-type": "application/json", ...(mood === "429" && { "retry-after": "1" }) });
    res.end('{"error":{"message":"chaos","type":"chaos"}}');
    return;
  }
  const { messages, stream, model } = JSON.parse(asked.toString());
  const text = messages.at(-1).content;
  const usage = { prompt_tokens: 5, completion_tokens: 5, total_tokens: 10 };
  const about = { id: "chatcmpl-1", created: 1, model };
  if (!stream) {
    const message = { role: "assistant", content: text };
    const choices = [{ index: 0, message, finish_reason: "stop" }];
    json(res, JSON.stringify({ ...about, object: "chat.completion", choices, usage }));
    return;
  }
  res.writeHead(200, { "content-type": "text/event-stream" });
  const event = (delta, finish_reason = null) => {
    const choices = [{ index: 0, delta, finish_reason }];
    res.write(`data: ${JSON.stringify({ ...about, object: "chat.completion.chunk", choices })}\n\n`);
  };
  for (const word of text.split(/(?<= )/)) event({ content: word });
  event({}, "stop");
  res.write(`data: ${JSON.stringify({ ...about, object: "chat.completion.chunk", choices: [], usage })}\n\n`);
  res.end("data: [DONE]\n\n");
}

function json(res, text, headers = {}) {
  res.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers });
  res.end(text);
}
