/**
 * Generates load over plain sockets with a fixed number of keep-alive connections and one request at a time on each.
 * Responses are parsed only to find their end.
 */
import { connect } from "node:net";

/** Sends `count` requests over `connections`; resolves with the number of errors. */
export function sendLoad({ port, request, count, connections }) {
  return new Promise((resolve) => {
    let begun = 0;
    let done = 0;
    let errors = 0;
    let open = 0;
    const finishOne = (failed) => {
      done += 1;
      if (failed) errors += 1;
      if (done >= count && open === 0) resolve(errors);
    };
    const openOne = () => {
      open += 1;
      const socket = connect(port, "127.0.0.1");
      socket.setNoDelay(true);
      const response = createResponseReader();
      let waiting = false;
      const next = () => {
        if (begun >= count) {
          socket.end();
          return;
        }
        begun += 1;
        waiting = true;
        socket.write(request);
      };
      socket.on("connect", next);
      socket.on("data", (chunk) => {
        if (!response.push(chunk)) return;
        waiting = false;
        if (response.status >= 400) errors += 1;
        response.reset();
        finishOne(false);
        next();
      });
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open -= 1;
        if (waiting) {
          finishOne(true);
          if (begun < count) openOne();
        } else if (done >= count && open === 0) resolve(errors);
      });
    };
    for (let i = 0; i < Math.min(connections, count); i++) openOne();
  });
}

/** Finds the end of a response: by content-length, or by the last chunk of a chunked body. */
export function createResponseReader() {
  let head = "";
  let left = -1;
  let chunked = false;
  let tail = "";
  const reader = {
    status: 0,
    push(chunk) {
      let body = chunk;
      if (left === -1 && !chunked) {
        head += chunk.toString("latin1");
        const end = head.indexOf("\r\n\r\n");
        if (end < 0) return false;
        body = Buffer.from(head.slice(end + 4), "latin1");
        const lines = head.slice(0, end).toLowerCase();
        reader.status = Number(lines.slice(9, 12));
        const length = /\r\ncontent-length: *(\d+)/.exec(lines);
        if (length) left = Number(length[1]);
        else if (lines.includes("transfer-encoding: chunked")) chunked = true;
        else left = 0;
      }
      if (chunked) {
        tail = (tail + body.toString("latin1")).slice(-7);
        return tail.endsWith("0\r\n\r\n");
      }
      left -= body.length;
      return left <= 0;
    },
    reset() {
      head = "";
      left = -1;
      chunked = false;
      tail = "";
    },
  };
  return reader;
}

/** A request as bytes, with a head of the size that clients with a bearer token send. */
export function httpRequest({ method = "GET", path = "/", body, contentType = "application/json", headers = {} }) {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    "host: bench.local",
    "user-agent: bench/1.0",
    "accept: */*",
    "accept-language: en",
    `cookie: session=${"c".repeat(64)}`,
    `x-trace: ${"t".repeat(32)}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  if (body !== undefined) lines.push(`content-type: ${contentType}`, `content-length: ${Buffer.byteLength(body)}`);
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${body ?? ""}`);
}
