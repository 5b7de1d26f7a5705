/**
 * Generates MCP load: opens sessions, then sends tool calls over keep-alive connections. A response counts only if it
 * has the ID of its request.
 */
import { connect } from "node:net";

const ACCEPT = "application/json, text/event-stream";
const VERSION = "2025-06-18";

export async function openSession(port, headers = {}) {
  const initialize = {
    jsonrpc: "2.0",
    id: 0,
    method: "initialize",
    params: { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: "bench", version: "1" } },
  };
  const response = await post(port, initialize, undefined, headers);
  const sessionId = response.headers.get("mcp-session-id");
  await response.text();
  await (await post(port, { jsonrpc: "2.0", method: "notifications/initialized" }, sessionId, headers)).text();
  return sessionId;
}

export function post(port, body, sessionId, headers = {}) {
  return fetch(`http://127.0.0.1:${port}/mcp`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: ACCEPT,
      ...headers,
      ...(sessionId ? { "mcp-session-id": sessionId, "mcp-protocol-version": VERSION } : {}),
    },
    body: JSON.stringify(body),
  });
}

let nextId = 1;

const ECHO_CALL = { method: "tools/call", params: { name: "echo", arguments: { message: "m".repeat(128) } } };

/** Makes `count` calls over `connections`, spread over the sessions; resolves with the number of errors. */
export function makeCalls({ port, sessions, connections, count, headers = {}, call = ECHO_CALL }) {
  let begun = 0;
  let errors = 0;
  const one = (sessionId) =>
    new Promise((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.setNoDelay(true);
      let received = "";
      let id = 0;
      const next = () => {
        if (begun >= count) {
          socket.end();
          return;
        }
        begun += 1;
        id = nextId++;
        received = "";
        socket.write(callRequest(port, sessionId, id, headers, call));
      };
      socket.on("connect", next);
      socket.on("data", (chunk) => {
        received += chunk.toString("latin1");
        if (!isComplete(received)) return;
        if (!received.includes(`"id":${id}`) || received.includes('"error":')) errors += 1;
        next();
      });
      socket.on("error", () => undefined);
      socket.on("close", resolve);
    });
  const all = Array.from({ length: connections }, (_, i) => one(sessions[i % sessions.length]));
  return Promise.all(all).then(() => errors + (begun < count ? count - begun : 0));
}

function callRequest(port, sessionId, id, headers, call) {
  const body = JSON.stringify({ jsonrpc: "2.0", id, ...call });
  return [
    "POST /mcp HTTP/1.1",
    `host: 127.0.0.1:${port}`,
    "content-type: application/json",
    `accept: ${ACCEPT}`,
    `mcp-session-id: ${sessionId}`,
    `mcp-protocol-version: ${VERSION}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${Buffer.byteLength(body)}`,
    "",
    body,
  ].join("\r\n");
}

function isComplete(received) {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(received.slice(0, end));
  if (length) return received.length >= end + 4 + Number(length[1]);
  return received.endsWith("0\r\n\r\n");
}
