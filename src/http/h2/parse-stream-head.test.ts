import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../../base/peer-inputs.ts";
import { readRequestHead } from "../request-head.ts";
import { parseStreamHead } from "./parse-stream-head.ts";

const head = (...more: string[]): string[] => [":method", "GET", ":scheme", "http", ":path", "/a?b", ...more];

test("pseudo-headers become method, target and host; split cookies become one", () => {
  const read = parseStreamHead(
    head(":authority", "a.test", "cookie", "a=1", "x-a", "1", "cookie", "b=2", "te", "trailers"),
  );
  assert.deepEqual([read.method, read.target, read.version, read.fault], ["GET", "/a?b", "2", undefined]);
  assert.deepEqual(read.pairs, ["host", "a.test", "cookie", "a=1; b=2", "x-a", "1", "te", "trailers"]);
  assert.equal(read.wantsTrailers, true);
});

test("without an authority the Host header counts, without both there is none", () => {
  assert.deepEqual(parseStreamHead(head("host", "b.test")).pairs, ["host", "b.test"]);
  assert.deepEqual(parseStreamHead(head()).pairs, []);
});

test("an authority and a Host header that name one host in two spellings agree", () => {
  const read = readRequestHead(
    peerInput("client/http2-head"),
    parseStreamHead(head(":authority", "A.test:080", "host", "a.test.:80")),
    false,
    false,
  );
  assert.deepEqual([read.host, read.headers.get("host")], ["a.test:80", "a.test:80"]);
});

const faults: [name: string, raw: string[], fault: RegExp][] = [
  ["two hosts that differ", head(":authority", "a.test", "host", "b.test"), /more than one host/],
  ["two Host headers", head("host", "a", "host", "a"), /more than one host/],
  ["two Host headers beside an authority", head(":authority", "a", "host", "a", "host", "a"), /more than one host/],
  ["an authority with a user", head(":authority", "u@a"), /not a host name/],
  ["no host", head(), /no Host header/],
  ["a length that is none", head(":authority", "a", "content-length", "+1"), /not a number/],
  ["WebSocket", head(":authority", "a", ":protocol", "websocket"), /WebSocket over HTTP\/2/],
  ["a target that is a URL", [":method", "GET", ":path", "http://a/", ":authority", "a"], /malformed/],
  ["a target with a space", [":method", "GET", ":path", "/a b", ":authority", "a"], /malformed/],
  ["no target", [":method", "GET", ":authority", "a"], /malformed/],
  ["an unknown scheme", [":method", "GET", ":path", "/", ":scheme", "ftp", ":authority", "a"], /scheme/],
  ["a method in lower case", [":method", "get", ":path", "/", ":authority", "a"], /method is not known/],
  [
    "a large head with a method in lower case",
    [":method", "get", ":path", "/", ":authority", "a", "x", "y".repeat(16_384)],
    /does not begin with a method/,
  ],
  [
    "a large head with an unknown method",
    [":method", "GETX", ":path", "/", ":authority", "a", "x", "y".repeat(16_384)],
    /does not begin with a method/,
  ],
  ["a control character in a value", head(":authority", "a", "x", "a\u0001"), /control character/],
  ["a name that is no token", head(":authority", "a", "x y", "a"), /malformed header/],
];
for (const [name, raw, fault] of faults)
  test(`${name} is rejected`, () => {
    assert.throws(() => readRequestHead(peerInput("client/http2-head"), parseStreamHead(raw), false, false), fault);
  });

test("the size of a head is that of the same head in HTTP/1.1", () => {
  const read = parseStreamHead(head(":authority", "a.test", "x", "y"));
  assert.equal(read.bytes, "GET /a?b HTTP/1.1\r\nhost: a.test\r\nx: y".length);
  const large = parseStreamHead(head(":authority", "a", "x", "y".repeat(16_384)));
  assert.throws(() => readRequestHead(peerInput("client/http2-head"), large, false, false), /larger than 16 KiB/);
});
