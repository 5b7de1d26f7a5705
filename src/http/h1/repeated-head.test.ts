import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ParsedRequest } from "./parse-request-head.ts";
import { RepeatedHead } from "./repeated-head.ts";
import { RequestParser } from "./request-parser.ts";

/** What each request of a connection is read as; the list of each is spoilt after it was looked at, as policies may. */
function readAll(messages: readonly string[]): string[] {
  const read: string[] = [];
  let body = "";
  const parser = new RequestParser({
    head(request, bytes) {
      body = bytes?.toString("latin1") ?? "";
      read.push(JSON.stringify([request, body]));
      request.pairs.push("x-spoilt", "1");
      request.pairs[1] = "spoilt";
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
    // The chunk belongs to whoever gets it; what is kept of it must be a copy.
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

test("requests of one connection are read as those of one connection each", () => {
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

const parsed: ParsedRequest = {
  method: "GET",
  target: "/",
  version: "1.1",
  pairs: ["host", "a"],
  areLinesSafe: true,
  isChunked: false,
  contentLength: undefined,
  keepAlive: true,
  expects: "nothing",
  upgrade: undefined,
  fault: undefined,
};
const bytes = (host: string): Buffer => Buffer.from(`GET / HTTP/1.1\r\nhost: ${host}\r\n\r\n`);

test("nothing is kept of the first head; the third of the same bytes is known", () => {
  const last = new RepeatedHead();
  const head = bytes("a");
  for (const known of [0, 0, head.length, head.length]) {
    assert.equal(last.lengthAt(head, 0), known);
    if (known === 0) last.remember(parsed, head, 0, head.length);
  }
  assert.deepEqual(last.request, parsed);
  assert.notEqual(last.request?.pairs, parsed.pairs);
  assert.equal(last.lengthAt(bytes("b"), 0), 0, "one character differs");
  assert.equal(last.lengthAt(head.subarray(0, -1), 0), 0, "its end has not come");
  assert.equal(last.lengthAt(Buffer.concat([Buffer.from("x"), head]), 1), head.length);
});

test("a client whose heads all differ is not followed for ever", () => {
  const last = new RepeatedHead();
  for (let i = 0; i < 30; i++) {
    const head = bytes(`host-${100 + i}`);
    assert.equal(last.lengthAt(head, 0), 0);
    last.remember(parsed, head, 0, head.length);
  }
  const head = bytes("host-129");
  assert.equal(last.lengthAt(head, 0), 0, "the last one is not kept");
  assert.equal(last.request, undefined);
});

test("long heads are read each time", () => {
  const last = new RepeatedHead();
  const head = bytes("a".repeat(5000));
  for (let i = 0; i < 3; i++) {
    assert.equal(last.lengthAt(head, 0), 0);
    last.remember(parsed, head, 0, head.length);
  }
});
