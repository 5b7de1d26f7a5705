/**
 * Ways to make a gateway retain memory, each a function of the gateway's port and the address that it attacks from. In a
 * thread, those that it was given names of run until the thread is terminated. None sends faster than a client at the other end of a network could.
 */
import { request as httpRequest } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { isMainThread, workerData } from "node:worker_threads";

const MIB = 1024 * 1024;
/** Between two acts of a vector. Together, the vectors share the processor, so that memory is tested and not its speed. */
const pauseMs = isMainThread ? 0 : 20 * workerData.names.length;
const MAX_YIELD_MS = 20;
const BODY_BYTES = 29 * MIB;
const FILL = Buffer.alloc(64 * 1024, "x");
const ONE_BYTE_CHUNKS = Buffer.from("1\r\nx\r\n".repeat(2_000));
const JSON_HEAD = "content-type: application/json\r\naccept: application/json, text/event-stream";
const QUESTION = { model: "m", max_tokens: 100, messages: [{ role: "user", content: "x" }] };
const PROMPT = '{"model":"m","messages":[{"role":"user","content":"';

/** Opens connections up to a number, and opens others for those that the gateway closed. */
function connections({ port, from }, count, opened) {
  const open = new Set();
  setInterval(() => {
    for (let i = 0; i < 10 && open.size < count; i++) {
      const socket = connect({ port, host: "127.0.0.1", localAddress: from });
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => open.delete(socket));
      socket.on("connect", () => opened(socket));
    }
  }, pauseMs);
}

/** Writes as the other side takes it, up to a number of bytes. */
function pour(socket, bytes, piece = FILL) {
  let left = bytes;
  const write = () => {
    while (left > 0 && !socket.destroyed) {
      const part = left < piece.length ? piece.subarray(0, left) : piece;
      left -= part.length;
      if (!socket.write(part)) return;
    }
  };
  socket.on("drain", write);
  write();
}

/** Writes one piece each second: parsing tiny chunks costs time, which is not what is tested here. */
function drip(socket, piece) {
  socket.write(piece);
  const timer = setInterval(() => socket.write(piece), 1_000);
  socket.on("close", () => clearInterval(timer));
}

/** Calls `send` again and again, with at most `parallel` at a time. */
function repeat(parallel, send) {
  let running = 0;
  let number = 0;
  setInterval(() => {
    while (running < parallel) {
      running += 1;
      send(number++)
        .catch(() => undefined)
        .finally(() => {
          running -= 1;
        });
    }
  }, pauseMs);
}

/** A whole request; the answer is read and thrown away. */
function send({ port, from }, path, headers, body) {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      { port, host: "127.0.0.1", localAddress: from, path, method: "POST", headers, agent: false, timeout: 20_000 },
      (response) => {
        response.resume();
        response.on("close", () => resolve(response));
      },
    );
    request.on("error", reject);
    request.on("timeout", () => request.destroy());
    request.end(body);
  });
}

const MCP_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

function initialize(padding, name = "c") {
  return JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: {
      protocolVersion: "2025-06-18",
      capabilities: { experimental: { padding } },
      clientInfo: { name, version: "1" },
    },
  });
}

async function openSession(at, path) {
  const response = await send(at, path, MCP_HEADERS, initialize(""));
  const id = response.headers["mcp-session-id"];
  if (id === undefined) throw new Error("no session");
  return id;
}

function sessionPost(id, body, path = "/mcp") {
  const text = JSON.stringify(body);
  return `POST ${path} HTTP/1.1\r\nHost: a\r\n${JSON_HEAD}\r\nmcp-session-id: ${id}\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}

const callTool = (id, name) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: {} } });

const call = (delayMs) => ({
  jsonrpc: "2.0",
  id: 2,
  method: "tools/call",
  params: { name: "big", arguments: { delayMs } },
});

/** Connections on which a session does something; `act` gets the session's id. */
function inSessions(at, count, act, path = "/mcp") {
  return connections(at, count, (socket) => {
    openSession(at, path).then(
      (id) => act(socket, id),
      () => socket.destroy(),
    );
  });
}

function http2Streams({ port, from }, sessions, streams, begin) {
  const open = new Set();
  setInterval(() => {
    if (open.size >= sessions) return;
    const session = connectHttp2(`http://127.0.0.1:${port}`, {
      createConnection: () => connect({ port, host: "127.0.0.1", localAddress: from }),
    });
    open.add(session);
    session.on("error", () => undefined);
    session.on("close", () => open.delete(session));
    session.on("connect", () => {
      for (let i = 0; i < streams && !session.destroyed; i++) begin(session);
    });
  }, pauseMs);
}

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const STREAMS = 100;
/** A connection begins 100 requests, so that ten connections per second are 1,000 requests per second. */
const HTTP2_PAUSES = 5;
const [HEADERS, SETTINGS, WINDOW_UPDATE] = [1, 4, 8];
const [END_STREAM, END_HEADERS] = [1, 4];
const INITIAL_WINDOW_SIZE = 4;

function frame(type, flags, stream, payload) {
  const bytes = Buffer.alloc(9 + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(stream, 5);
  payload.copy(bytes, 9);
  return bytes;
}

/** A literal field (RFC 7541 section 6.2), for the dynamic table or not. */
function field(name, value, isIndexed = false) {
  const text = (bytes) =>
    Buffer.concat([
      Buffer.from(
        bytes.length < 127 ? [bytes.length] : [127, ((bytes.length - 127) & 127) | 128, (bytes.length - 127) >> 7],
      ),
      Buffer.from(bytes),
    ]);
  return Buffer.concat([Buffer.from([isIndexed ? 0x40 : 0]), text(name), text(value)]);
}

function requestHead(method, path, ...fields) {
  return Buffer.concat([
    field(":method", method),
    field(":scheme", "http"),
    field(":authority", "a"),
    field(":path", path),
    ...fields,
  ]);
}

/**
 * Connections of as many streams as the gateway allows, which give their responses a window of so many bytes. `headOf`
 * returns the head of a stream by its number; `opened` may go on with the connection.
 */
function http2Frames({ port, from }, { count, windowBytes, flags = END_HEADERS | END_STREAM, headOf, opened }) {
  const open = new Set();
  const settings = Buffer.alloc(6);
  settings.writeUInt16BE(INITIAL_WINDOW_SIZE);
  settings.writeUInt32BE(windowBytes, 2);
  const heads = Array.from({ length: STREAMS }, (_, i) => frame(HEADERS, flags, 2 * i + 1, headOf(i)));
  const bytes = Buffer.concat([PREFACE, frame(SETTINGS, 0, 0, settings), ...heads]);
  setInterval(() => {
    if (open.size >= count) return;
    const socket = connect({ port, host: "127.0.0.1", localAddress: from });
    open.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => open.delete(socket));
    socket.resume();
    socket.write(bytes);
    opened?.(socket);
  }, HTTP2_PAUSES * pauseMs);
}

const head = (path, more) => `POST ${path} HTTP/1.1\r\nHost: a\r\n${JSON_HEAD}\r\n${more}\r\n\r\n`;

export const VECTORS = {
  /** Bodies whose last bytes never come. */
  "held bodies": (at) =>
    connections(at, 200, (socket) => {
      socket.write(head("/llm/v1/chat/completions", `content-length: ${BODY_BYTES + 1}`) + PROMPT);
      pour(socket, BODY_BYTES - PROMPT.length);
    }),
  "held chunked bodies": (at) =>
    connections(at, 200, (socket) => {
      socket.write(head("/llm/v1/chat/completions", "transfer-encoding: chunked"));
      const chunk = Buffer.concat([Buffer.from("10000\r\n"), FILL, Buffer.from("\r\n")]);
      pour(socket, 400 * chunk.length, chunk);
    }),
  "chunks of one byte": (at) =>
    connections(at, 50, (socket) => {
      socket.write(head("/llm/v1/chat/completions", "transfer-encoding: chunked"));
      drip(socket, ONE_BYTE_CHUNKS);
    }),
  "chunks of one byte to a server that does not read": (at) =>
    connections(at, 500, (socket) => {
      socket.write(head("/deaf", "transfer-encoding: chunked"));
      drip(socket, ONE_BYTE_CHUNKS);
    }),
  "large initialize": (at) => {
    const body = initialize("x".repeat(3.8 * MIB));
    return repeat(8, () => send(at, "/mcp", MCP_HEADERS, body));
  },
  "initialize at the limit": (at) => {
    const body = initialize("x".repeat(60 * 1024));
    return repeat(8, () => send(at, "/mcp", MCP_HEADERS, body));
  },
  "many sessions": (at) => repeat(16, () => send(at, "/mcp", MCP_HEADERS, initialize(""))),
  "capabilities of 2026-07-28": (at) =>
    repeat(8, (number) => {
      const size = number % 2 === 0 ? 50 * 1024 : 3.8 * MIB;
      const meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "c", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": { experimental: { number, padding: "x".repeat(size) } },
      };
      const headers = { ...MCP_HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list" };
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta: meta } });
      return send(at, "/mcp", headers, body);
    }),
  subscriptions: (at) =>
    inSessions(at, 200, (socket, id) => {
      const text = Array.from({ length: 200 }, (_, n) =>
        sessionPost(id, {
          jsonrpc: "2.0",
          id: n,
          method: "resources/subscribe",
          params: { uri: `file:///${"x".repeat(4000)}${n}` },
        }),
      ).join("");
      socket.resume();
      pour(socket, text.length, Buffer.from(text));
    }),
  /** The client leaves before its answer comes, which is kept for it. */
  "event logs": (at) =>
    inSessions(at, 100, (socket, id) => {
      socket.resume();
      socket.write(sessionPost(id, call(500)));
      setTimeout(() => socket.destroy(), 300);
    }),
  "tool results that are not read": (at) =>
    inSessions(at, 200, (socket, id) => {
      socket.pause();
      socket.write(sessionPost(id, call(0)));
    }),
  /** Each session has as many calls under way as it may. */
  "API responses that do not end": (at) =>
    inSessions(
      at,
      40,
      (socket, id) => {
        socket.resume();
        const texts = Array.from({ length: 250 }, (_, n) =>
          sessionPost(id, callTool(n, n % 2 ? "text" : "image"), "/api"),
        );
        const text = texts.join("");
        pour(socket, text.length, Buffer.from(text));
      },
      "/api",
    ),
  "large API responses that are not read": (at) =>
    inSessions(
      at,
      100,
      (socket, id) => {
        socket.pause();
        socket.write(sessionPost(id, callTool(1, "large"), "/api"));
      },
      "/api",
    ),
  /** Large descriptions: one that is valid and one that is not, so that it is loaded again. */
  "large API descriptions": (at) =>
    repeat(8, (number) => send(at, number % 2 ? "/described" : "/broken", MCP_HEADERS, initialize(""))),
  /** Bombs, streams and JSON of the size that is decompressed, for clients of the same API and of another one. */
  "compressed responses": (at) =>
    repeat(16, (number) => {
      const path = number % 2 ? "/zipped/v1/chat/completions" : "/zipped/v1/messages";
      return send(
        at,
        path,
        { "content-type": "application/json" },
        JSON.stringify({ ...QUESTION, stream: number % 3 > 0 }),
      );
    }),
  "compressed requests": (at) =>
    connections(at, 200, (socket) => {
      socket.write(head("/llm/v1/chat/completions", `content-encoding: gzip\r\ncontent-length: ${BODY_BYTES}`));
      pour(socket, BODY_BYTES);
    }),
  "tool calls that do not end": (at) =>
    repeat(16, () =>
      send(
        at,
        "/tools/v1/messages",
        { "content-type": "application/json" },
        JSON.stringify({ ...QUESTION, stream: true }),
      ),
    ),
  /** The server sends more requests each second, and accepts no response. */
  "requests of MCP servers": (at) =>
    inSessions(
      at,
      100,
      (socket, id) => {
        socket.resume();
        for (let n = 0; n < 2; n++) socket.write(sessionPost(id, callTool(n, "any"), "/asking"));
        setTimeout(() => socket.destroy(), 10_000);
      },
      "/asking",
    ),
  "responses that are not read": (at) =>
    connections(at, 400, (socket) => {
      socket.pause();
      socket.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    }),
  "slow readers": (at) =>
    connections(at, 200, (socket) => {
      socket.pause();
      socket.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
      const timer = setInterval(() => socket.read(1_000), 200);
      socket.on("close", () => clearInterval(timer));
    }),
  "pipelined requests": (at) =>
    connections(at, 500, (socket) => {
      socket.pause();
      pour(socket, 4 * MIB, Buffer.from("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000)));
    }),
  "cache fill": (at) =>
    repeat(8, (number) => {
      const body = `${PROMPT}${number}"}]}`;
      return send(at, "/cached/v1/chat/completions", { "content-type": "application/json" }, body);
    }),
  "uploads to a server that does not read": (at) =>
    connections(at, 1_000, (socket) => {
      socket.write(head("/deaf", `content-length: ${BODY_BYTES}`));
      pour(socket, BODY_BYTES);
    }),
  "many connections": (at) => connections(at, 8_000, () => undefined),
  "unfinished heads": (at) =>
    connections(at, 3_000, (socket) => {
      socket.write(`GET /plain HTTP/1.1\r\nHost: a\r\n${`x-pad: ${"y".repeat(170)}\r\n`.repeat(80)}`);
    }),
  "many headers": (at) =>
    repeat(16, () =>
      send(at, "/plain", Object.fromEntries(Array.from({ length: 90 }, (_, n) => [`x-${n}`, "y".repeat(150)])), "{}"),
    ),
  "HTTP/2 bodies": (at) =>
    http2Streams(at, 20, 100, (session) => {
      const stream = session.request({
        ":method": "POST",
        ":path": "/llm/v1/chat/completions",
        "content-type": "application/json",
        "content-length": String(BODY_BYTES + 1),
      });
      stream.on("error", () => undefined);
      stream.write(PROMPT);
      pour(stream, BODY_BYTES - PROMPT.length);
    }),
  "HTTP/2 responses that are not read": (at) =>
    http2Streams(at, 20, 100, (session) => {
      const stream = session.request({ ":path": "/endless" });
      stream.on("error", () => undefined);
      stream.pause();
    }),
  "HTTP/2 streams with a closed window": (at) =>
    http2Frames(at, { count: 1_000, windowBytes: 0, headOf: () => requestHead("GET", "/plain") }),
  "HTTP/2 streams with a closed window from several addresses": (at) => {
    for (let i = 0; i < 4; i++)
      http2Frames(
        { ...at, from: `127.0.1.${i + 1}` },
        { count: 250, windowBytes: 0, headOf: () => requestHead("GET", "/plain") },
      );
  },
  "HTTP/2 windows that open by one byte": (at) =>
    http2Frames(at, {
      count: 1_000,
      windowBytes: 1,
      headOf: () => requestHead("GET", "/plain"),
      opened: (socket) => {
        const byte = Buffer.from([0, 0, 0, 1]);
        const ids = Array.from({ length: STREAMS }, (_, i) => 2 * i + 1);
        const updates = Buffer.concat(ids.map((id) => frame(WINDOW_UPDATE, 0, id, byte)));
        const timer = setInterval(() => socket.write(updates), 3_000);
        socket.on("close", () => clearInterval(timer));
      },
    }),
  "HTTP/2 heads of 8 KB": (at) =>
    http2Frames(at, {
      count: 1_000,
      windowBytes: 0,
      headOf: () => requestHead("GET", "/plain", field("x-pad", "y".repeat(8_000))),
    }),
  "HTTP/2 references to large fields": (at) =>
    http2Frames(at, {
      count: 1_000,
      windowBytes: 0,
      headOf: (i) =>
        i === 0
          ? requestHead("GET", "/plain", field("x-a", "y".repeat(1_900), true), field("x-b", "y".repeat(1_900), true))
          : requestHead("GET", "/plain", Buffer.from([62, 63, 62, 63, 62, 63, 62].map((index) => 0x80 | index))),
    }),
  "HTTP/2 requests that are not answered": (at) =>
    http2Frames(at, { count: 1_000, windowBytes: 65_535, headOf: () => requestHead("GET", "/deaf") }),
  "HTTP/2 bodies that do not come": (at) =>
    http2Frames(at, {
      count: 1_000,
      windowBytes: 0,
      flags: END_HEADERS,
      headOf: () => requestHead("POST", "/deaf", field("expect", "100-continue")),
    }),
  "WebSocket flood": (at) =>
    connections(at, 300, (socket) => {
      socket.write(
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
      );
      socket.once("data", () => {
        socket.pause();
        const frame = Buffer.concat([Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]), FILL]);
        pour(socket, 100 * frame.length, frame);
      });
    }),
};

if (!isMainThread) {
  // The memory is tested, not the processor, which the gateway and both clients share. The attacker lets a running
  // request of the well-behaved client finish.
  setInterval(() => Atomics.wait(workerData.turn, 0, 1, MAX_YIELD_MS), 1);
  for (const name of workerData.names) VECTORS[name](workerData.at);
}
