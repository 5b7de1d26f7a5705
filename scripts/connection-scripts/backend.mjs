/**
 * The backend of connection scripts: parses strictly what the gateway forwards, reports it, and responds with the ID of
 * the request and the hash of its body. It has its own parser, so that it shares no bug with the gateway's server.
 */
import { createServer } from "node:net";
import { hashOf } from "./kinds.mjs";

/** For the key that all WebSocket requests of the scripts have (RFC 6455 section 1.3). */
const ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const CHUNK_LINE = /^[0-9a-f]+$/i;

/** `report({ method, target, id, hash })` per request; `fault(text)` for what no gateway may send. */
export function startBackend(report, fault) {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => serve(socket, report, fault));
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => resolve({ server, port: server.address().port })),
  );
}

function serve(socket, report, fault) {
  let unread = "";
  let tunnel;
  socket.on("error", () => undefined);
  socket.on("end", () => socket.end());
  socket.on("data", (chunk) => {
    unread += chunk.toString("latin1");
    if (tunnel !== undefined) readTunnel();
    else while (tunnel === undefined && readOne());
  });

  function readOne() {
    const headEnd = unread.indexOf("\r\n\r\n");
    if (headEnd < 0) return false;
    const [line, ...rest] = unread.slice(0, headEnd).split("\r\n");
    const match = /^([A-Z]+) (\/\S*) HTTP\/1\.1$/.exec(line);
    const headers = new Map();
    for (const text of rest) {
      const colon = text.indexOf(":");
      const name = text.slice(0, colon).toLowerCase();
      if (colon < 1 || /\s/.test(name)) return broken(`header line ${JSON.stringify(text)}`);
      if (headers.has(name)) return broken(`two ${name} headers`);
      headers.set(name, text.slice(colon + 1).trim());
    }
    if (match === null) return broken(`request line ${JSON.stringify(line)}`);
    const body = readBody(headers, headEnd + 4);
    if (body === undefined) return false;
    const [, method, target] = match;
    const request = { method, target, headers, id: headers.get("x-id") ?? "", hash: hashOf(body), body };
    report(request);
    if (headers.get("upgrade")?.toLowerCase() === "websocket" && headers.get("x-reply") !== "decline")
      openTunnel(request);
    else answer(socket, request);
    return true;
  }

  function readBody(headers, start) {
    if (headers.has("transfer-encoding")) {
      if (headers.has("content-length") || headers.get("transfer-encoding") !== "chunked") return broken("framing");
      return readChunks(start);
    }
    const length = Number(headers.get("content-length") ?? 0);
    if (unread.length < start + length) return undefined;
    const body = unread.slice(start, start + length);
    unread = unread.slice(start + length);
    return body;
  }

  function readChunks(start) {
    let body = "";
    for (let at = start; ; ) {
      const lineEnd = unread.indexOf("\r\n", at);
      if (lineEnd < 0) return undefined;
      const line = unread.slice(at, lineEnd);
      if (!CHUNK_LINE.test(line)) return broken(`chunk line ${JSON.stringify(line.slice(0, 40))}`);
      const size = Number.parseInt(line, 16);
      if (size === 0) {
        const end = unread.indexOf("\r\n\r\n", lineEnd);
        if (end < 0) return undefined;
        unread = unread.slice(end + 4);
        return body;
      }
      if (unread.length < lineEnd + 2 + size + 2) return undefined;
      body += unread.slice(lineEnd + 2, lineEnd + 2 + size);
      at = lineEnd + 2 + size + 2;
    }
  }

  function broken(what) {
    fault(`the backend received a bad ${what}`);
    unread = "";
    socket.destroy();
    return undefined;
  }

  function openTunnel({ id }) {
    tunnel = { id };
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${ACCEPT}\r\nX-Id: ${id}\r\n\r\n`,
    );
    readTunnel();
  }

  /** Everything up to the last message of the script belongs to the tunnel; the response is its hash. */
  function readTunnel() {
    const last = unread.indexOf("X-Last: 1\r\n\r\n");
    if (last < 0) return;
    socket.end(`tunnel ${tunnel.id} ${hashOf(unread.slice(0, last + 13))}`);
    unread = "";
  }
}

function answer(socket, { method, headers, id, hash }) {
  const reply = headers.get("x-reply");
  const text = `answer ${id} ${hash}`;
  const start = (status, lines) => `HTTP/1.1 ${status} X\r\n${[`X-Id: ${id}`, ...lines].join("\r\n")}\r\n\r\n`;
  const whole = (status, body, lines = []) =>
    socket.write(
      start(status, [...lines, `Content-Length: ${body.length}`]) + (method === "HEAD" ? "" : body),
      "latin1",
    );
  if (reply === "slow") later(3, () => whole(200, text));
  else if (reply === "large") whole(200, text.padEnd(120_000, "."));
  else if (reply === "empty") socket.write(start(204, []));
  else if (reply === "cut") socket.destroy();
  else if (reply === "decline") whole(426, text);
  else if (reply === "close") {
    whole(200, text, ["Connection: close"]);
    socket.end();
  } else if (reply === "chunked") {
    socket.write(`${start(200, ["Transfer-Encoding: chunked"])}6\r\nanswer\r\n`);
    later(2, () => socket.write(`${(text.length - 6).toString(16)}\r\n${text.slice(6)}\r\n0\r\n\r\n`));
  } else whole(200, text);
}

function later(turns, action) {
  if (turns === 0) action();
  else setImmediate(later, turns - 1, action);
}
