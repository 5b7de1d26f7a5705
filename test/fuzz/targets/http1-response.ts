/**
 * The reader of backends' answers: the same for every chunking, never more lenient than Node's own parser, the same body
 * as that, and nothing accepted whose length could be read in two ways.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { ResponseError, ResponseParser } from "../../../src/http/h1/response-parser.ts";
import type { Random } from "../../support/random.ts";
import { readWithNode } from "../node-parser.ts";
import { waysToArrive } from "../pieces.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

/** Node reads smaller heads than we do. */
const NODE_HEAD_BYTES = 16_000;
/** The example of RFC 6455 section 1.3, with the line that accepts it. */
const KEY = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

type Input = { readonly isHead: boolean; readonly wantsUpgrade: boolean; readonly bytes: Buffer };

interface Reading {
  readonly status: number;
  readonly pairs: readonly string[];
  readonly keepAlive: boolean;
  readonly body: string;
  readonly trailers: readonly string[];
  readonly end: string;
}

function read({ isHead, wantsUpgrade }: Input, pieces: readonly Buffer[]): Reading {
  let status = 0;
  let pairs: readonly string[] = [];
  let keepAlive = false;
  let trailers: readonly string[] = [];
  let isUpgrade = false;
  let ended = 0;
  const body: Buffer[] = [];
  const parser = new ResponseParser(peerInput("backend/http1-head"), peerInput("backend/response-framing"), {
    head(head) {
      expect(status === 0, "two heads");
      ({ status, keepAlive } = head);
      ({ pairs } = head.headers);
    },
    data(chunk) {
      expect(status !== 0 && ended === 0, "data outside of a response");
      expect(chunk.length > 0, "an empty piece of data");
      body.push(chunk);
    },
    end(lines) {
      expect(status !== 0, "an end without a head");
      ended += 1;
      trailers = lines;
    },
    upgrade(head, rest) {
      isUpgrade = true;
      ({ status } = head);
      ({ pairs } = head.headers);
      body.push(rest);
    },
  });
  parser.expect(isHead ? "HEAD" : "GET", wantsUpgrade ? { protocol: "websocket", key: KEY } : undefined);
  const refusal = refusalOf(() => {
    for (const piece of pieces) {
      // After an upgrade the bytes are no longer the parser's.
      if (isUpgrade) body.push(piece);
      else parser.push(Buffer.from(piece));
    }
    if (!isUpgrade) parser.eof();
  }, ResponseError);
  expect(ended <= 1, "two ends");
  const end = refusal !== undefined ? `refused: ${refusal.message}` : isUpgrade ? "upgrade" : "complete";
  return { status, pairs, keepAlive, body: Buffer.concat(body).toString("latin1"), trailers, end };
}

function checkAgainstNode(input: Input, ours: Reading): void {
  const heads = withPlainHeads(input.bytes);
  // By the final head: an interim one that announces a body is refused.
  const isChunked = ours.pairs.some((name, i) => i % 2 === 0 && name === "transfer-encoding");
  const node = readWithNode("response", isChunked ? withPlainSizes(heads) : heads, { hasNoBody: input.isHead });
  expect(node.error === undefined, `Node refuses it: ${node.error?.message}`);
  const theirs = node.messages.find(({ status }) => status >= 200);
  expect(theirs?.isComplete === true, "Node does not see its end");
  expectSame(
    [ours.status, ours.body, ours.pairs],
    [
      theirs.status,
      theirs.body.toString("latin1"),
      theirs.rawHeaders.map((text, i) => (i % 2 ? text : text.toLowerCase())),
    ],
    "Node reads",
  );
  // Node decides before it is told that an answer to HEAD has no body.
  if (ours.keepAlive && !input.isHead) expect(theirs.shouldKeepAlive, "Node would close the connection");
}

/** Node takes `close` in an interim head as the end of the connection, about which the final head decides: it gets heads without. */
function withPlainHeads(bytes: Buffer): Buffer {
  const text = bytes.toString("latin1");
  let at = 0;
  let plain = "";
  for (let isInterim = true; isInterim && at < text.length; ) {
    const end = endOfHead(text, at);
    isInterim = isInterimAt(text, at);
    const head = text.slice(at, end);
    plain += isInterim ? head.replace(/\r\nconnection:[^\r\n]*/gi, "") : head;
    at = end;
  }
  return Buffer.from(plain + text.slice(at), "latin1");
}

function isInterimAt(text: string, at: number): boolean {
  return text.startsWith("HTTP/1.1 1", at);
}

function endOfHead(text: string, at: number): number {
  const end = text.indexOf("\r\n\r\n", at);
  return end < 0 ? text.length : end + 4;
}

/** Node is strict about chunk extensions, which we skip, and padded sizes: it gets them without. */
function withPlainSizes(bytes: Buffer): Buffer {
  let text = bytes.toString("latin1");
  let headAt = 0;
  while (isInterimAt(text, headAt)) headAt = endOfHead(text, headAt);
  const bodyAt = endOfHead(text, headAt);
  const size = /([0-9a-f]{1,8})([ \t]*(?:;[^\r\n]*)?)\r\n/iy;
  for (let at = bodyAt; ; ) {
    size.lastIndex = at;
    const found = size.exec(text);
    if (!found) return Buffer.from(text, "latin1");
    const digits = found[1] as string;
    text = `${text.slice(0, at)}${digits}${text.slice(at + digits.length + (found[2] as string).length)}`;
    at += digits.length + 2 + Number.parseInt(digits, 16) + 2;
    if (Number.parseInt(digits, 16) === 0) return Buffer.from(text, "latin1");
  }
}

/** By the bytes of the final head: what frames the body stands there once, in the plainest form. */
function checkFraming(input: Input, ours: Reading): void {
  const text = input.bytes.toString("latin1");
  const lengths = ours.pairs.filter((name, i) => i % 2 === 0 && name === "content-length").length;
  const codings = ours.pairs.filter((name, i) => i % 2 === 0 && name === "transfer-encoding").length;
  expect(lengths + codings <= 1, "two headers frame one body");
  for (const [, value] of text.matchAll(/^content-length[ \t]*:([^\r\n]*)\r\n/gim))
    if (lengths > 0 && ours.body.length > 0 && !ours.body.includes(value as string))
      expect(/^[ \t]*[0-9]+[ \t]*$/.test(value as string), "a length that is no plain number was believed");
  for (const value of ours.pairs.filter((_, i) => i % 2 === 1))
    expect(!/[\r\n\0]/.test(value), "a line break or NUL in a header");
}

const LINES = [
  "content-length: 5", "Content-Length: 0", "content-length: 3", "content-length: 5, 5", "content-length: +5", "content-length: 05",
  "content-length:5 ", "content-length:\t5", "content-length: 0x5", "content-length: 5\u00a0", "content-length: \u00a05",
  "content-length : 5", "transfer-encoding: chunked", "Transfer-Encoding: Chunked", "transfer-encoding: gzip, chunked",
  "transfer-encoding: chunked\u00a0", "transfer-encoding: identity", "transfer-encoding:\tchunked", "connection: close",
  "connection: keep-alive", "connection: upgrade", "upgrade: websocket", ACCEPT, "x: y", "x:", "x: a\tb", " folded: x", "x: a\u0000b",
  "x: \u00e9", ": x", "x y: z", "set-cookie: a=b", "x: a\rb", "x: a\nb",
]; // biome-ignore format: a table
const STATUS = [
  "HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified",
  "HTTP/1.1 101 Switching", "HTTP/1.1 100 Continue", "HTTP/1.1 103 Hints", "HTTP/2 200 OK", "HTTP/1.1 600 X", "http/1.1 200 OK",
  "HTTP/1.1  200 OK", "HTTP/1.1 200\tOK", "HTTP/1.1 500 \u00e9", "HTTP/1.1 99 X",
]; // biome-ignore format: a table
const BODY = [
  "hello", "5\r\nhello\r\n", "0\r\n\r\n", "0\r\n", "\r\n", "3\r\nabc\r\n", "A\r\n0123456789\r\n", "0a\r\n0123456789\r\n",
  "5;x=y\r\nhello\r\n", "5 \r\nhello\r\n", "5\nhello\n", "-1\r\n", "fffffffff\r\n", "0\r\nx: y\r\n\r\n", "5\r\nhelloX\r\n",
  "0\r\ncontent-length: 5\r\n\r\n", "x", " 5\r\nhello\r\n", "5;a=\"\r\n\"\r\nhello\r\n", "5;\u0001\r\nhello\r\n",
]; // biome-ignore format: a table

function generate(random: Random): Input {
  let text = "";
  for (let heads = random.oneIn(8) ? 2 : 1; heads > 0; heads--) {
    text += `${random.oneIn(3) ? random.pick(STATUS) : "HTTP/1.1 200 OK"}\r\n`;
    for (let lines = random.int(4); lines > 0; lines--)
      text += `${random.pick(LINES)}${random.oneIn(40) ? "\n" : "\r\n"}`;
    text += "\r\n";
  }
  // Around the limits of head and trailers, now and then.
  if (random.oneIn(3000)) text = text.replace("\r\n", `\r\nx: ${"a".repeat(32_700 + random.int(80))}\r\n`);
  text += random.text(BODY, 4);
  if (random.oneIn(3000)) text += `0\r\nx: ${"a".repeat(8_150 + random.int(60))}\r\n\r\n`;
  return { isHead: random.oneIn(12), wantsUpgrade: random.oneIn(8), bytes: Buffer.from(text, "latin1") };
}

export const http1Response = defineTarget<Input>({
  name: "http1-response",
  seeds: [
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil close",
  ].map((text) => ({ isHead: false, wantsUpgrade: false, bytes: Buffer.from(text) })),
  smokeCases: 1_200,
  generate,
  run(input) {
    const whole = read(input, [input.bytes]);
    for (const pieces of waysToArrive(input.bytes)) {
      const other = read(input, pieces);
      // What was passed on before a refusal depends on how it came; that it is refused, and why, does not.
      if (whole.end.startsWith("refused")) expectSame(other.end, whole.end, "in pieces");
      else expectSame(other, whole, "in pieces");
    }
    if (whole.end === "complete") {
      checkFraming(input, whole);
      if (input.bytes.length < NODE_HEAD_BYTES) checkAgainstNode(input, whole);
    }
    // More of the same is nothing new: it would make the cases longer and longer.
    const [headers, trailers] = [whole.pairs.length, whole.trailers.length].map((length) => Math.min(length, 8));
    return `${whole.end} ${whole.status} ${whole.keepAlive} ${headers} ${trailers} ${whole.body.length > 0}`;
  },
});
