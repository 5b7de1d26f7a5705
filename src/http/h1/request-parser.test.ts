import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cutAt, type Reading, readRequests } from "../../../test/support/http1/read-requests.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { RequestParser } from "./request-parser.ts";

const head = (...lines: string[]): string => `${["GET /p?q HTTP/1.1", "Host: a", ...lines].join("\r\n")}\r\n\r\n`;
const chunked = (body: string): string => `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${body}`;

/** The method, target, version and body of each complete request. */
const accepted: [name: string, bytes: string, requests: string[]][] = [
  ["a GET", head(), ["GET /p?q 1.1 "]],
  ["HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", ["GET / 1.0 "]],
  ["no header at all", "OPTIONS * HTTP/1.1\r\n\r\n", ["OPTIONS * 1.1 "]],
  ["a body with a length", head("Content-Length: 3").concat("abc"), ["GET /p?q 1.1 abc"]],
  ["a length of zero", head("Content-Length: 000"), ["GET /p?q 1.1 "]],
  ["chunks", chunked("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), ["POST / 1.1 abc0123456789"]],
  ["chunk extensions", chunked('3;a;b=c;d="e \\" f"\r\nabc\r\n0;x=y\r\n\r\n'), ["POST / 1.1 abc"]],
  ["trailers", chunked("0\r\nx-sum: 1\r\nx-other:\r\n\r\n"), ["POST / 1.1 "]],
  ["chunked in capitals", chunked("0\r\n\r\n").replace("chunked", "CHUNKED"), ["POST / 1.1 "]],
  ["empty lines before", `\r\n\r\n${head()}`, ["GET /p?q 1.1 "]],
  ["an empty line between", `${head()}\r\n${head()}`, ["GET /p?q 1.1 ", "GET /p?q 1.1 "]],
  [
    "requests one behind the other",
    `${head("Content-Length: 1")}x${chunked("1\r\ny\r\n0\r\n\r\n")}${head()}`,
    ["GET /p?q 1.1 x", "POST / 1.1 y", "GET /p?q 1.1 "],
  ],
  ["nothing after connection: close", `${head("Connection: close")}${head()}`, ["GET /p?q 1.1 "]],
  ["bytes above 127 in a value", head("X: \xe9\xff"), ["GET /p?q 1.1 "]],
];
for (const [name, bytes, requests] of accepted) {
  test(`reads ${name}`, () => assert.deepEqual(summary(read(bytes)), requests));
}

test("the attributes of a request", () => {
  const of = (...lines: string[]) => {
    const request = read(head(...lines)).requests[0]?.head;
    assert.ok(request);
    return request;
  };
  assert.deepEqual(of("X-A:  \t b c \t", "x-a:").pairs, ["host", "a", "x-a", "b c", "x-a", ""]);
  assert.equal(of("X: \xa0b\xa0").pairs[3], "\xa0b\xa0", "only spaces and tabs are taken off");
  assert.equal(of().keepAlive, true);
  assert.equal(of("Connection: x, Close").keepAlive, false);
  assert.equal(of("Connection: x", "Connection: close").keepAlive, false);
  assert.equal(of("Connection: closed").keepAlive, true);
  assert.equal(of("Upgrade: websocket").upgrade, undefined, "an offer stands in connection too");
  assert.equal(of("Connection: keep-alive, Upgrade", "Upgrade: WebSocket").upgrade, "WebSocket");
  assert.equal(of("Connection: upgrade", "Upgrade: a", "Upgrade: b").upgrade, "a,b");
  assert.equal(of("Expect: 100-Continue").expects, "continue");
  assert.equal(of("Expect: x").expects, "unknown");
  const old = (line: string) => read(`GET / HTTP/1.0\r\n${line}\r\n\r\n`).requests[0]?.head;
  assert.equal(old("Expect: x")?.expects, "nothing");
  assert.equal(old("Connection: Keep-Alive")?.keepAlive, true);
  assert.equal(old("Connection: keep-alive, close")?.keepAlive, false);
  assert.equal(old("X: 1")?.keepAlive, false);
});

const hostile: [name: string, bytes: string, kind: string][] = [
  ["length and coding", head("Content-Length: 5", "Transfer-Encoding: chunked"), "fault"],
  ["coding and length", head("Transfer-Encoding: chunked", "Content-Length: 5"), "fault"],
  ["two lengths", head("Content-Length: 5", "content-length: 5"), "fault"],
  ["two codings", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), "fault"],
  ...["", "+5", "-5", " 5 5", "5,5", "5, 5", "0x5", "5.0", "1e3", "\xa05", "5\xa0", "9".repeat(16)].map(
    (value): [string, string, string] => [
      `a length of ${JSON.stringify(value)}`,
      head(`Content-Length: ${value}`),
      "fault",
    ],
  ),
  ...["", "gzip", "gzip, chunked", "chunked, gzip", "xchunked", "chunked;", '"chunked"', "identity", "chunked,"].map(
    (value): [string, string, string] => [
      `a coding of ${JSON.stringify(value)}`,
      head(`Transfer-Encoding: ${value}`),
      "fault",
    ],
  ),
  ["a coding on HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "fault"],
  ["a space before the colon", head("X : 1"), "bad"],
  ["a tab before the colon", head("X\t: 1"), "bad"],
  ["a line without a colon", head("X"), "bad"],
  ["a line without a name", head(": x"), "bad"],
  ["a folded line", head("X: 1", " 2"), "bad"],
  ["a folded first line", "GET / HTTP/1.1\r\n X: 1\r\n\r\n", "bad"],
  ["a colon in the next line only", "GET / HTTP/1.1\r\nX\r\nY: 1\r\n\r\n", "bad"],
  ...["\0", "\x01", "\x0b", "\x0c", "\x1f", "\x7f", "\n", "\r"].flatMap((byte): [string, string, string][] => [
    [`${JSON.stringify(byte)} in a value`, head(`X: a${byte}b`), "bad"],
    [`${JSON.stringify(byte)} in a name`, head(`X${byte}Y: a`), "bad"],
    [`${JSON.stringify(byte)} in the target`, `GET /${byte} HTTP/1.1\r\n\r\n`, "bad"],
    [`${JSON.stringify(byte)} before the request`, `${byte}GET / HTTP/1.1\r\n\r\n`, "bad"],
    [`${JSON.stringify(byte)} in a trailer`, chunked(`0\r\nx: a${byte}b\r\n\r\n`), "bad"],
    [`${JSON.stringify(byte)} in a chunk extension`, chunked(`1;a${byte}b\r\nx\r\n0\r\n\r\n`), "bad"],
  ]),
  ["bare line feeds", "GET / HTTP/1.1\nHost: a\n\n", "bad"],
  ["an unknown method", "BREW / HTTP/1.1\r\n\r\n", "bad"],
  ["a method in lower case", "get / HTTP/1.1\r\n\r\n", "bad"],
  ["a TLS hello", "\x16\x03\x01\x02\x00", "bad"],
  ["two spaces in the line", "GET  / HTTP/1.1\r\n\r\n", "bad"],
  ["a space in the target", "GET /a b HTTP/1.1\r\n\r\n", "bad"],
  ["a space after the version", "GET / HTTP/1.1 \r\n\r\n", "bad"],
  ["a space before the method", " GET / HTTP/1.1\r\n\r\n", "bad"],
  ["a byte above 127 in the target", "GET /\xff HTTP/1.1\r\n\r\n", "bad"],
  ["HTTP/0.9", "GET /\r\n\r\n", "version"],
  ["HTTP/2.0", "GET / HTTP/2.0\r\n\r\n", "version"],
  ["HTTP/1.2", "GET / HTTP/1.2\r\n\r\n", "bad"],
  ["http/1.1", "GET / http/1.1\r\n\r\n", "bad"],
  ["HTTP/1.1x", "GET / HTTP/1.1x\r\n\r\n", "bad"],
  ["too many empty lines", `${"\r\n".repeat(9)}${head()}`, "bad"],
  ["a head of 17 KB", head(`X: ${"a".repeat(17_000)}`), "too-large"],
  ["a chunk size of 0x1", chunked("0x1\r\n"), "bad"],
  ["an empty chunk size", chunked("\r\n"), "bad"],
  ["a negative chunk size", chunked("-1\r\n"), "bad"],
  ["a space after the chunk size", chunked("1 \r\n"), "bad"],
  ["a chunk size beyond 32 bits", chunked("100000000\r\n"), "bad"],
  ["a chunk size that ends with a line feed", chunked("1\nx"), "bad"],
  ["a chunk that is longer than it says", chunked("1\r\nxy\r\n"), "bad"],
  ["a chunk that ends with a line feed", chunked("1\r\nx\n"), "bad"],
  ["a chunk extension without a name", chunked("1;\r\n"), "bad"],
  ["an open quote in a chunk extension", chunked('1;a="b\r\n'), "bad"],
  ["chunk extensions of 17 KB", chunked(`1;${"a".repeat(17_000)}\r\n`), "extensions"],
  [
    "chunk extensions of 17 KB altogether",
    chunked(`1;${"a".repeat(100)}\r\nx\r\n`.replace(/^/, "").repeat(170)),
    "extensions",
  ],
  ["a trailer without a colon", chunked("0\r\nx\r\n\r\n"), "bad"],
  ["a folded trailer", chunked("0\r\nx: 1\r\n y\r\n\r\n"), "bad"],
  ["a head of 17 KB that does not begin with a method", `get / HTTP/1.1\r\nx: ${"a".repeat(17_000)}\r\n\r\n`, "bad"],
  ["a head of 17 KB with an unknown method", `GETX / HTTP/1.1\r\nx: ${"a".repeat(17_000)}\r\n\r\n`, "bad"],
  ["a control character in a head of 17 KB", `GET / HTTP/1.1\r\nx: \x01${"a".repeat(17_000)}\r\n\r\n`, "bad"],
  ["101 trailers", chunked(`0\r\n${"x: 1\r\n".repeat(101)}\r\n`), "too-large"],
  ["trailers of 9 KB", chunked(`0\r\n${`x: ${"a".repeat(900)}\r\n`.repeat(10)}\r\n`), "too-large"],
];
for (const [name, bytes, kind] of hostile) {
  test(`rejects ${name}`, () => {
    const reading = read(bytes);
    assert.equal(reading.kind, kind, `${reading.refusal}`);
    assert.ok(!reading.requests.some(({ complete }) => complete), "nothing of it is a request");
  });
}

test("it accepts or rejects the same wherever the bytes are split", () => {
  for (const [name, bytes] of [...accepted, ...hostile]) {
    const whole = Buffer.from(bytes, "latin1");
    const wanted = verdict(readRequests([whole]));
    const step = whole.length > 2_000 ? 997 : 1;
    for (let at = 1; at < whole.length; at += step)
      assert.deepEqual(verdict(readRequests(cutAt(whole, [at]))), wanted, `${name}, cut at ${at}`);
    const places = Array.from({ length: Math.floor(whole.length / step) }, (_, i) => i * step);
    assert.deepEqual(verdict(readRequests(cutAt(whole, places))), wanted, `${name}, in pieces of ${step}`);
  }
});

test("any bytes, split anywhere, parse the same", () => {
  const piece = fc.constantFrom(
    ...[
      "GET / HTTP/1.1\r\n",
      "POST /x HTTP/1.0\r\n",
      "Host: a\r\n",
      "Content-Length: 4\r\n",
      "\r\n",
      "abcd",
      "4\r\n",
      "0\r\n",
    ],
    ...["Transfer-Encoding: chunked\r\n", "x: y\r\n", "\r", "\n", " ", ":", ";a=b", "Connection: close\r\n", "\0"],
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 14 }), fc.array(fc.nat(200), { maxLength: 6 }), (parts, cuts) => {
      const bytes = Buffer.from(parts.join(""), "latin1");
      assert.deepEqual(verdict(readRequests(cutAt(bytes, cuts))), verdict(readRequests([bytes])));
    }),
    { numRuns: 1_000, seed: 1 },
  );
});

test("a body that arrived with its head is one slice of the input", () => {
  const reading = read(head("Content-Length: 3").concat("abc"));
  assert.equal(reading.requests[0]?.body, "abc");
});

/** The data events for one body in chunks of these sizes, with reads of `readBytes`. */
function dataEvents(sizes: readonly number[], readBytes: number): Buffer[] {
  const text = sizes.map((size) => `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`).join("");
  const bytes = Buffer.from(chunked(`${text}0\r\n\r\n`));
  const events: Buffer[] = [];
  let hasEnded = false;
  const parser = new RequestParser(peerInput("client/http1-head"), peerInput("client/request-framing"), {
    head: () => undefined,
    data: (chunk) => void events.push(Buffer.from(chunk)),
    end: () => {
      hasEnded = true;
    },
  });
  for (let at = 0; at < bytes.length; at += readBytes) parser.push(bytes.subarray(at, at + readBytes), 0);
  assert.ok(hasEnded);
  return events;
}

test("tiny chunks that arrive in one read are one data event [R50]", () => {
  const sizes = new Array<number>(5_000).fill(1);
  assert.deepEqual(
    dataEvents(sizes, 2 ** 20).map(({ length }) => length),
    [5_000],
  );
});

test("joined or not, every byte of tiny and larger chunks arrives once, however they are split", () => {
  const size = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 200, max: 300 }));
  fc.assert(
    fc.property(
      fc.array(size, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 1, max: 400 }),
      (sizes, readBytes) => {
        const length = sizes.reduce((sum, one) => sum + one, 0);
        assert.equal(Buffer.concat(dataEvents(sizes, readBytes)).toString(), "x".repeat(length));
      },
    ),
    { numRuns: 300 },
  );
});

function read(bytes: string): Reading {
  return readRequests([Buffer.from(bytes, "latin1")]);
}

function summary({ requests, refusal }: Reading): string[] {
  assert.equal(refusal, undefined);
  return requests.map(({ head: { method, target, version }, body, complete }) => {
    assert.ok(complete);
    return `${method} ${target} ${version} ${body}`;
  });
}

/**
 * The reason of a rejection may depend on the split, but the rejection and its kind may not. A body before a fault may be reported
 * or not.
 */
function verdict({ requests, refusal, kind, closed }: Reading): unknown {
  return {
    requests: requests.filter(({ complete }) => complete).map(({ head, body }) => [head, body]),
    open:
      refusal === undefined ? requests.filter(({ complete }) => !complete).map(({ head, body }) => [head, body]) : [],
    isRefused: refusal !== undefined,
    kind,
    closed,
  };
}

/** Parses all messages on one connection. The header list is changed after each head, as policies may do. */
function readAll(messages: readonly string[]): string[] {
  const read: string[] = [];
  let body = "";
  const parser = new RequestParser(peerInput("client/http1-head"), peerInput("client/request-framing"), {
    head(request, bytes) {
      body = bytes?.toString("latin1") ?? "";
      read.push(JSON.stringify([request, body]));
      request.pairs.push("x-changed", "1");
      request.pairs[1] = "changed";
    },
    data: (chunk) => {
      body += chunk.toString("latin1");
    },
    end: () => read.push(body),
  });
  for (const message of messages) {
    const bytes = Buffer.from(message, "latin1");
    try {
      for (let at = 0; at < bytes.length; ) at = parser.push(bytes, at);
    } catch (error) {
      read.push(String(error));
      return read;
    }
    // The parser must not retain a view of the chunk.
    bytes.fill(0);
  }
  return read;
}

const line = fc.constantFrom("a: 1", "a: 2", "b: 1", "connection: close", "expect: 100-continue", "x-request-id: 12");
const message = fc
  .record({
    target: fc.constantFrom("/a", "/b", "/ab"),
    lines: fc.array(line, { maxLength: 2 }),
    body: fc.constantFrom("", "1", "2", "12", "GET / HTTP/1.1\r\n\r\n"),
    isChunked: fc.boolean(),
  })
  .map(({ target, lines, body, isChunked }) => {
    const framing = isChunked ? "transfer-encoding: chunked" : `content-length: ${body.length}`;
    const sent = isChunked ? `${body === "" ? "" : `${body.length.toString(16)}\r\n${body}\r\n`}0\r\n\r\n` : body;
    return `${[`POST ${target} HTTP/1.1`, "host: h", ...lines, framing].join("\r\n")}\r\n\r\n${sent}`;
  });

test("pipelined requests parse as they would on separate connections", () => {
  fc.assert(
    fc.property(
      fc.array(message, { maxLength: 4 }),
      fc.array(fc.nat({ max: 3 }), { maxLength: 20 }),
      (kinds, order) => {
        const messages = order.flatMap((at) => kinds[at] ?? []);
        assert.deepEqual(
          readAll(messages),
          messages.flatMap((one) => readAll([one])),
        );
      },
    ),
    { numRuns: 2000 },
  );
});
