import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../../base/peer-inputs.ts";
import { type ParserEvents, type RequestedUpgrade, ResponseParser } from "./response-parser.ts";

interface Seen {
  heads: { status: number; headers: string[]; keepAlive: boolean }[];
  body: string;
  ends: number;
  trailers: string[];
  upgraded: string | undefined;
}

/** The example of RFC 6455 section 1.3. */
const WEBSOCKET: RequestedUpgrade = { protocol: "websocket", key: "dGhlIHNhbXBsZSBub25jZQ==" };
const ACCEPT = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

function parserFor(method = "GET", upgrade?: RequestedUpgrade): { parser: ResponseParser; seen: Seen } {
  const seen: Seen = { heads: [], body: "", ends: 0, trailers: [], upgraded: undefined };
  const events: ParserEvents = {
    head: ({ status, headers, keepAlive }) => void seen.heads.push({ status, headers: [...headers.pairs], keepAlive }),
    data: (chunk) => {
      seen.body += chunk.toString("latin1");
    },
    end: (trailers) => {
      seen.ends += 1;
      seen.trailers = trailers;
    },
    upgrade: (_head, rest) => {
      seen.upgraded = rest.toString("latin1");
    },
  };
  const parser = new ResponseParser(peerInput("backend/http1-head"), peerInput("backend/response-framing"), events);
  parser.expect(method, upgrade);
  return { parser, seen };
}

const good = [
  { name: "a length", text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", body: "hello", keepAlive: true },
  { name: "no body", text: "HTTP/1.1 204 No Content\r\n\r\n", body: "", keepAlive: true },
  { name: "an empty reason", text: "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n", body: "", keepAlive: true },
  { name: "no reason", text: "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", body: "", keepAlive: true },
  {
    name: "connection: close",
    text: "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    body: "x",
    keepAlive: false,
  },
  { name: "HTTP/1.0", text: "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", body: "x", keepAlive: false },
  {
    name: "HTTP/1.0 that is kept",
    text: "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx",
    body: "x",
    keepAlive: true,
  },
  {
    name: "chunks",
    text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
    body: "hello0123456789",
    keepAlive: true,
  },
  {
    name: "interim answers",
    text: "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    body: "ok",
    keepAlive: true,
  },
];
for (const [connection, keepAlive] of [
  [":keep-alive", false],
  ["x-keep-alive", false],
  ["keep-alive, close", false],
  ["x, Keep-Alive", true],
] as const)
  good.push({
    name: `${connection} in HTTP/1.0`,
    text: `HTTP/1.0 200 OK\r\nconnection: ${connection}\r\ncontent-length: 1\r\n\r\nx`,
    body: "x",
    keepAlive,
  });
for (const { name, text, body, keepAlive } of good) {
  test(`reads a response with ${name}, however it is split`, () => {
    for (let cut = 0; cut <= text.length; cut++) {
      const { parser, seen } = parserFor();
      parser.push(Buffer.from(text.slice(0, cut), "latin1"));
      parser.push(Buffer.from(text.slice(cut), "latin1"));
      assert.equal(seen.body, body);
      assert.equal(seen.ends, 1);
      assert.equal(seen.heads.length, 1);
      assert.equal(seen.heads[0]?.keepAlive, keepAlive);
      assert.equal(parser.isIdle, true);
    }
  });
}

test("forwards trailers in order", () => {
  const { parser, seen } = parserFor();
  parser.push(
    Buffer.from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"),
  );
  assert.deepEqual(seen.trailers, ["x-sum", "1", "x-more", "2"]);
});

test("a body without length ends with the connection", () => {
  const { parser, seen } = parserFor();
  parser.push(Buffer.from("HTTP/1.1 200 OK\r\n\r\nabc"));
  assert.equal(seen.ends, 0);
  parser.eof();
  assert.deepEqual([seen.body, seen.ends, seen.heads[0]?.keepAlive], ["abc", 1, false]);
});

test("the response to HEAD has no body, whatever its length is", () => {
  const { parser, seen } = parserFor("HEAD");
  parser.push(Buffer.from("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"));
  assert.equal(seen.ends, 1);
});

test("an upgrade passes on the bytes after its head", () => {
  const { parser, seen } = parserFor("GET", WEBSOCKET);
  parser.push(
    Buffer.from(`HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: WebSocket\r\n${ACCEPT}\r\nframe`),
  );
  assert.equal(seen.upgraded, "frame");
});

const bad = [
  { name: "no status line", text: "garbage\r\n\r\n" },
  { name: "another protocol", text: "HTTP/2 200 OK\r\n\r\n" },
  { name: "a status of four digits", text: "HTTP/1.1 2000 OK\r\n\r\n" },
  { name: "two lengths", text: "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx" },
  { name: "a length with a sign", text: "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\nx" },
  { name: "a list of lengths", text: "HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\nx" },
  { name: "a negative length", text: "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n" },
  { name: "length and chunks", text: "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n" },
  { name: "another coding", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n" },
  { name: "chunks in HTTP/1.0", text: "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" },
  { name: "a folded line", text: "HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n" },
  { name: "a space before the colon", text: "HTTP/1.1 200 OK\r\nx : a\r\n\r\n" },
  { name: "a line without a colon", text: "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n" },
  { name: "a bare line feed", text: "HTTP/1.1 200 OK\r\nx: a\ny: b\r\n\r\n" },
  { name: "a NUL", text: "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n" },
  { name: "a chunk size with 0x", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\na\r\n" },
  { name: "an empty chunk size", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n" },
  { name: "a chunk longer than it says", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n" },
  { name: "a chunk size of nine digits", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n123456789\r\n" },
  { name: "a chunk size ended by a line feed", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\na\r\n" },
  {
    name: "digits after a blank in a chunk size",
    text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1 0\r\na\r\n",
  },
  {
    name: "a length in the trailers",
    text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 1\r\n\r\n",
  },
  ...["content-length:\t1", "content-length: 1\t", "transfer-encoding:\tchunked", "transfer-encoding: chunked\t"].map(
    (line) => ({ name: `a tab in ${JSON.stringify(line)}`, text: `HTTP/1.1 200 OK\r\n${line}\r\n\r\n1` }),
  ),
  { name: "a length after the byte 0xA0", text: "HTTP/1.1 200 OK\r\ncontent-length: \xa01\r\n\r\nx" },
  { name: "a coding before the byte 0xA0", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\xa0\r\n\r\n" },
  { name: "a head one byte over the limit", text: `HTTP/1.1 200 OK\r\nx: ${"a".repeat(32 * 1024 - 19)}\r\n\r\n` },
  { name: "an unexpected upgrade", text: "HTTP/1.1 101 Switching Protocols\r\n\r\n" },
  { name: "a second response", text: "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" },
  { name: "an interim answer in HTTP/1.0", text: "HTTP/1.0 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" },
  ...["content-length: 5", "transfer-encoding: chunked"].map((line) => ({
    name: `an interim answer with ${line}`,
    text: `HTTP/1.1 103 Early Hints\r\n${line}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n`,
  })),
  { name: "interim answers without end", text: "HTTP/1.1 100 Continue\r\n\r\n".repeat(20) },
  { name: "a head of 40 KB", text: `HTTP/1.1 200 OK\r\nx: ${"a".repeat(40_000)}\r\n\r\n` },
  { name: "a head that does not end", text: `HTTP/1.1 200 OK\r\nx: ${"a".repeat(40_000)}` },
  {
    name: "chunk extensions without end",
    text: `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;${"a".repeat(20_000)}\r\n`,
  },
];
for (const { name, text } of bad) {
  test(`rejects ${name}, whole and byte by byte`, () => {
    const whole = parserFor().parser;
    assert.throws(() => whole.push(Buffer.from(text, "latin1")), { name: "ResponseError" });
    const slow = parserFor().parser;
    assert.throws(
      () => {
        for (const byte of Buffer.from(text, "latin1")) slow.push(Buffer.from([byte]));
      },
      { name: "ResponseError" },
    );
  });
}

test("a connection that closes in the middle is an error", () => {
  for (const text of [
    "",
    "HTTP/1.1 200",
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
  ]) {
    const { parser } = parserFor();
    parser.push(Buffer.from(text));
    assert.throws(() => parser.eof(), { name: "ResponseError" });
  }
});

test("any bytes either parse or are rejected, and never hang or crash", () => {
  const piece = fc.constantFrom(
    "HTTP/1.1 200 OK",
    "\r\n",
    "\n",
    "content-length: 3",
    "transfer-encoding: chunked",
    ":",
    "abc",
    "0",
    "5",
    ";",
    "\0",
    " ",
    "x: y",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), fc.integer({ min: 1, max: 9 }), (pieces, step) => {
      const { parser } = parserFor();
      const bytes = Buffer.from(pieces.join(""), "latin1");
      try {
        for (let i = 0; i < bytes.length; i += step) parser.push(bytes.subarray(i, i + step));
        parser.eof();
      } catch (error) {
        assert.equal((error as Error).name, "ResponseError");
      }
    }),
    { numRuns: 500 },
  );
});

const CHUNKED_HEAD = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

test("chunks that arrive in one read are one data event, and every byte arrives once, however they are split", () => {
  const size = fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 20 }), fc.integer({ min: 200, max: 300 }));
  fc.assert(
    fc.property(
      fc.array(size, { minLength: 1, maxLength: 60 }),
      fc.constantFrom("", ";a", ";a=b", " "),
      fc.integer({ min: 1, max: 700 }),
      (sizes, extension, step) => {
        let sent = "";
        let text = CHUNKED_HEAD;
        for (const [index, bytes] of sizes.entries()) {
          const data = String.fromCharCode(0x21 + (index % 90)).repeat(bytes);
          sent += data;
          text += `${bytes.toString(16)}${extension}\r\n${data}\r\n`;
        }
        const bytes = Buffer.from(`${text}0\r\n\r\n`, "latin1");
        const pieces: string[] = [];
        let ends = 0;
        const parser = new ResponseParser(peerInput("backend/http1-head"), peerInput("backend/response-framing"), {
          head: () => undefined,
          data: (chunk) => void pieces.push(chunk.toString("latin1")),
          end: () => {
            ends += 1;
          },
          upgrade: assert.fail,
        });
        parser.expect("GET");
        for (let at = 0; at < bytes.length; at += step) {
          const before = pieces.length;
          // The parser moves bytes inside its input.
          parser.push(Buffer.from(bytes.subarray(at, at + step)));
          assert.ok(pieces.length - before <= 1, "one read was handed on in several pieces");
        }
        assert.deepEqual([pieces.join(""), ends, pieces.includes("")], [sent, 1, false]);
      },
    ),
    { seed: 1, numRuns: 500 },
  );
});
