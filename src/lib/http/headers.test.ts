import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList, isHeaderName, isHeaderValue } from "./headers.ts";

test("repeats are kept in order and joined when read", () => {
  const list = HeaderList.fromRaw(["X-A", "1", "B", "2", "x-a", "3"]);
  assert.equal(list.get("x-a"), "1, 3");
  assert.deepEqual(list.getAll("x-a"), ["1", "3"]);
  assert.deepEqual([...list.names()], ["x-a", "b"]);
  assert.deepEqual({ ...list.toObject() }, { "x-a": ["1", "3"], b: "2" });
  assert.equal(list.get("none"), undefined);
});

test("set replaces all of a name at the place of the first, delete takes all", () => {
  const list = new HeaderList(["a", "1", "b", "2", "a", "3", "a", "4"]);
  list.set("a", "x");
  assert.deepEqual(list.pairs, ["a", "x", "b", "2"]);
  list.set("c", "new");
  list.delete("a");
  assert.deepEqual(list.pairs, ["b", "2", "c", "new"]);
});

test("a copy has a life of its own", () => {
  const list = new HeaderList(["a", "1"]);
  list.clone().set("a", "2");
  assert.equal(list.get("a"), "1");
});

test("hop-by-hop headers go, and what connection names, but not what is kept", () => {
  const list = new HeaderList([
    "connection",
    "close, X-Hop, host",
    "x-hop",
    "1",
    "host",
    "a",
    "keep-alive",
    "x",
    "te",
    "x",
    "transfer-encoding",
    "chunked",
    "upgrade",
    "x",
    "proxy-connection",
    "x",
    "trailer",
    "x",
    "x-kept",
    "1",
  ]);
  list.removeHopByHop(new Set(["host"]));
  assert.deepEqual(list.pairs, ["host", "a", "x-kept", "1"]);
});

test("names like those of an object's methods are names", () => {
  const list = new HeaderList(["__proto__", "1", "constructor", "2", "tostring", "3"]);
  assert.deepEqual(Object.keys(list.toObject()).sort(), ["__proto__", "constructor", "tostring"]);
});

for (const [text, valid] of [
  ["x-a", true],
  ["X_a.1!", true],
  ["", false],
  ["a b", false],
  ["a:", false],
  ["ä", false],
  ["a\n", false],
] as const) {
  test(`${JSON.stringify(text)} is ${valid ? "a" : "no"} header name`, () => assert.equal(isHeaderName(text), valid));
}
for (const [text, valid] of [
  ["", true],
  ["a b\tc", true],
  ["\xff", true],
  ["a\r\nb", false],
  ["a\0", false],
  ["\u20ac", false],
  ["\x7f", false],
] as const) {
  test(`${JSON.stringify(text)} is ${valid ? "a" : "no"} header value`, () => assert.equal(isHeaderValue(text), valid));
}
