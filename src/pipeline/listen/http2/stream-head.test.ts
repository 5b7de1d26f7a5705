import assert from "node:assert/strict";
import { test } from "node:test";
import { readStreamHead } from "./stream-response.ts";

const head = (...more: string[]): string[] => [":method", "GET", ":scheme", "http", ":path", "/a?b", ...more];

test("pseudo-headers become method, target and host; split cookies become one", () => {
  const read = readStreamHead(
    head(":authority", "a.test", "cookie", "a=1", "x-a", "1", "cookie", "b=2", "te", "trailers"),
  );
  assert.deepEqual([read.method, read.target, read.version, read.fault], ["GET", "/a?b", "2", undefined]);
  assert.deepEqual(read.pairs, ["host", "a.test", "cookie", "a=1; b=2", "x-a", "1", "te", "trailers"]);
  assert.equal(read.wantsTrailers, true);
});

test("without an authority the Host header counts, without both there is none", () => {
  assert.deepEqual(readStreamHead(head("host", "b.test")).pairs, ["host", "b.test"]);
  assert.deepEqual(readStreamHead(head()).pairs, []);
});

const faults: [name: string, raw: string[], fault: RegExp][] = [
  ["two hosts that differ", head(":authority", "a.test", "host", "b.test"), /disagree/],
  ["two Host headers", head("host", "a", "host", "a"), /more than one host/],
  ["a length that is none", head("content-length", "+1"), /not a number/],
  ["WebSocket", head(":protocol", "websocket"), /WebSocket over HTTP\/2/],
  ["a target that is a URL", [":method", "GET", ":path", "http://a/"], /malformed/],
  ["a target with a space", [":method", "GET", ":path", "/a b"], /malformed/],
  ["no target", [":method", "GET"], /malformed/],
];
for (const [name, raw, fault] of faults)
  test(`${name} is a fault`, () => assert.match(readStreamHead(raw).fault ?? "", fault));

test("the size of a head includes 32 bytes for each line", () => {
  assert.equal(readStreamHead(head("x", "y".repeat(16_000))).isTooLarge, false);
  assert.equal(readStreamHead(head("x", "y".repeat(16_384))).isTooLarge, true);
  const many = Array.from({ length: 500 }, (_, i) => [`x-${i}`, ""]).flat();
  assert.equal(readStreamHead(head(...many)).isTooLarge, true);
});
