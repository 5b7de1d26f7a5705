/**
 * The messages of connection scripts. Each defines the correct response: from the backend (with the ID of the request)
 * or from the gateway itself, the allowed statuses, and whether the connection ends with it.
 */
import { crc32 } from "node:zlib";

/**
 * Length and checksum are enough, because collisions are not attacked; a cryptographic hash costs ten times as much.
 */
export const hashOf = (text) => `${text.length}-${crc32(text).toString(16)}`;

/** `end`: "no", "yes" (no response to later messages) or "may". */
function message(id, fields) {
  const made = {
    id,
    kind: "",
    method: "GET",
    body: "",
    hash: "",
    from: "backend",
    statuses: [200],
    end: "no",
    ...fields,
  };
  made.hash = hashOf(made.body);
  return made;
}

function head(method, id, lines = [], { path = "/b", version = "1.1", host = "gateway.test" } = {}) {
  const target = `${path}/${id}`;
  const hostLine = host === "" ? [] : [`Host: ${host}`];
  return `${[`${method} ${target} HTTP/${version}`, ...hostLine, `X-Id: ${id}`, ...lines].join("\r\n")}\r\n\r\n`;
}

const get =
  (lines = [], fields = {}, where = {}) =>
  (id) =>
    message(id, { bytes: head("GET", id, lines, where), ...fields });

function withBody(method, size, lines = [], fields = {}, where = {}) {
  return (id, random) => {
    const body = text(random, size(random));
    return message(id, {
      method,
      body,
      bytes: head(method, id, [...lines, `Content-Length: ${body.length}`], where) + body,
      ...fields,
    });
  };
}

function chunked(method, size, lines = [], trailers = "", extension = "", fields = {}) {
  return (id, random) => {
    const body = text(random, size(random));
    let framed = "";
    for (let at = 0; at < body.length; ) {
      const length = Math.min(body.length - at, 1 + Math.floor(random() * body.length));
      framed += `${length.toString(16)}${extension}\r\n${body.slice(at, at + length)}\r\n`;
      at += length;
    }
    return message(id, {
      method,
      body,
      bytes: `${head(method, id, [...lines, "Transfer-Encoding: chunked"])}${framed}0\r\n${trailers}\r\n`,
      ...fields,
    });
  };
}

/** Text that a parser which lost its place would take for a request. */
function text(random, length) {
  const seed = `GET /b/smuggled HTTP/1.1\r\nHost: gateway.test\r\nX-Id: smuggled\r\n\r\n${random().toString(36)}`;
  return seed.repeat(Math.ceil(length / seed.length) + 1).slice(0, length);
}

const small = (random) => 1 + Math.floor(random() * 300);
const large = (random) => 70_000 + Math.floor(random() * 30_000);
const refused = (...statuses) => ({ from: "gateway", statuses, end: "yes" });
const offer = (protocol) => ["Connection: Upgrade", `Upgrade: ${protocol}`];
const WEBSOCKET = [...offer("websocket"), "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="];
const SMUGGLED = "GET /b/smuggled HTTP/1.1\r\nHost: gateway.test\r\nX-Id: smuggled\r\n\r\n";

const raw = (fields, bytes) => (id) => message(id, { bytes: bytes(id), ...fields });

/** By name; a weight makes plain ones more frequent, so that scripts do not all end at their first message. */
export const KINDS = {
  get: [8, get()],
  "get, slow": [6, get(["X-Reply: slow"])],
  "get, large answer": [2, get(["X-Reply: large"])],
  "get, chunked answer": [4, get(["X-Reply: chunked"])],
  "get, 204": [2, get(["X-Reply: empty"], { statuses: [204] })],
  "get, backend closes": [2, get(["X-Reply: close"])],
  "get, backend cuts": [1, get(["X-Reply: cut"], { from: "gateway", statuses: [502], end: "no" })],
  head: [3, (id) => message(id, { method: "HEAD", bytes: head("HEAD", id) })],
  options: [1, (id) => message(id, { method: "OPTIONS", bytes: head("OPTIONS", id) })],
  "delete with body": [2, withBody("DELETE", small)],
  post: [6, withBody("POST", small)],
  "post, empty": [2, withBody("POST", () => 0)],
  "post, large": [2, withBody("POST", large)],
  "post, chunked": [4, chunked("POST", small)],
  "post, chunked large": [1, chunked("POST", large)],
  "post, chunk extension": [1, chunked("POST", small, [], "", ";a=b")],
  "post, trailers": [2, chunked("POST", small, ["Trailer: X-Sum"], "X-Sum: 1\r\n")],
  "post, expect": [3, withBody("POST", small, ["Expect: 100-continue"], { interim: true })],
  "post, expect, large": [1, withBody("POST", large, ["Expect: 100-continue"], { interim: true })],
  "post, expect, chunked": [2, chunked("POST", small, ["Expect: 100-continue"], "", "", { interim: true })],
  "post, expect, refused route": [
    1,
    withBody(
      "POST",
      small,
      ["Expect: 100-continue"],
      { from: "gateway", statuses: [403], end: "may" },
      { path: "/refuse" },
    ),
  ],
  "unknown expectation": [1, get(["Expect: foo"], refused(417))],
  "refused route": [3, get([], { from: "gateway", statuses: [403] }, { path: "/refuse" })],
  "refused route with body": [
    2,
    withBody("POST", small, [], { from: "gateway", statuses: [403], end: "may" }, { path: "/refuse" }),
  ],
  "refused route, large body": [
    1,
    withBody("POST", large, [], { from: "gateway", statuses: [403], end: "may" }, { path: "/refuse" }),
  ],
  "no route": [2, get([], { from: "gateway", statuses: [404] }, { path: "/none" })],
  websocket: [2, get(WEBSOCKET, { statuses: [101], end: "yes", isTunnel: true })],
  "websocket, declined": [1, get([...WEBSOCKET, "X-Reply: decline"], { statuses: [426], end: "yes" })],
  "websocket, refused route": [1, get(WEBSOCKET, refused(403), { path: "/refuse" })],
  "websocket, expectation": [1, get([...WEBSOCKET, "Expect: foo"], refused(417))],
  "websocket, expects 100": [1, get([...WEBSOCKET, "Expect: 100-continue"], { interim: true, end: "may" })],
  "websocket, HTTP/1.0": [1, get(WEBSOCKET, { end: "yes" }, { version: "1.0" })],
  "websocket, close": [1, get(["Connection: close, Upgrade", "Upgrade: websocket"], { end: "yes" })],
  "websocket and h2c": [1, get(offer("websocket, h2c"))],
  "two upgrade lines": [
    1,
    get([...offer("websocket"), "Upgrade: h2c"], { from: "any", statuses: [200, 400], end: "may" }),
  ],
  "websocket with body": [1, withBody("POST", small, offer("websocket"))],
  "h2c offer": [4, get(["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"])],
  "h2c offer with body": [3, withBody("POST", small, offer("h2c"))],
  "h2c offer, chunked": [2, chunked("POST", small, offer("h2c"))],
  connect: [
    1,
    raw(
      { method: "CONNECT", ...refused(405) },
      (id) => `CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nX-Id: ${id}\r\n\r\n`,
    ),
  ],
  "HTTP/1.0": [1, get([], { end: "yes" }, { version: "1.0" })],
  "HTTP/1.0, kept": [2, get(["Connection: keep-alive"], { end: "may" }, { version: "1.0" })],
  "connection: close": [1, get(["Connection: close"], { end: "yes" })],
  "absolute target": [
    1,
    raw({}, (id) => `GET http://gateway.test/b/${id} HTTP/1.1\r\nHost: gateway.test\r\nX-Id: ${id}\r\n\r\n`),
  ],
  "empty lines before": [1, raw({}, (id) => `\r\n\r\n${head("GET", id)}`)],
  trace: [1, raw({ method: "TRACE", ...refused(405) }, (id) => head("TRACE", id))],
  "no host": [1, get([], refused(400), { host: "" })],
  "two hosts": [1, get(["Host: other.test"], refused(400))],
  "space before colon": [1, get(["X-Odd : 1"], refused(400))],
  "folded header": [1, get(["X-Odd: 1\r\n  2"], { from: "any", statuses: [200, 400], end: "may" })],
  "bad version": [1, raw(refused(400), (id) => `GET /b/${id} HTTP/3.7\r\nHost: gateway.test\r\nX-Id: ${id}\r\n\r\n`)],
  garbage: [1, raw(refused(400), () => "\x16\x03\x01\x02\x00\x01\x00 nonsense\r\n\r\n")],
  "head too large": [1, get([`X-Odd: ${"x".repeat(20_000)}`], refused(431))],
  "length and chunked": [
    2,
    raw(
      { method: "POST", ...refused(400) },
      (id) => `${head("POST", id, ["Content-Length: 5", "Transfer-Encoding: chunked"])}0\r\n\r\n${SMUGGLED}`,
    ),
  ],
  "two lengths": [
    1,
    raw(
      { method: "POST", ...refused(400) },
      (id) => `${head("POST", id, ["Content-Length: 0", "Content-Length: 5"])}${SMUGGLED}`,
    ),
  ],
  "odd transfer coding": [
    1,
    raw(
      { method: "POST", ...refused(400, 501) },
      (id) => `${head("POST", id, ["Transfer-Encoding: xchunked"])}0\r\n\r\n${SMUGGLED}`,
    ),
  ],
  "bad chunk": [
    1,
    raw(
      { method: "POST", ...refused(400) },
      (id) => `${head("POST", id, ["Transfer-Encoding: chunked"])}zz\r\n${SMUGGLED}`,
    ),
  ],
};

/** Closes in any case: a script always has an end. */
export const LAST = get(["Connection: close", "X-Last: 1"], { end: "yes", kind: "last" });
