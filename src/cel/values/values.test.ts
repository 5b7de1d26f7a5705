import assert from "node:assert/strict";
import { test } from "node:test";
import { type CelInput, CelScalar, celError, celList, celMap, celUint, isCelList, isCelMap } from "@bufbuild/cel";
import { fromCel } from "./output.ts";
import * as values from "./values.ts";
import { toCel } from "./values.ts";

test("the library takes our views for its own maps and lists", () => {
  assert.equal(isCelMap(toCel({})), true);
  assert.equal(isCelList(toCel([])), true);
  assert.equal(isCelMap(toCel([])), false);
});

test("our checks recognize the library's own values", () => {
  for (const value of [celMap(new Map()), celList([]), celUint(1n), CelScalar.INT]) assert.equal(toCel(value), value);
  assert.equal(values.isCelMap(celMap(new Map())), true);
  assert.equal(values.isCelList(celList([])), true);
  assert.equal(values.isCelError(celError("no")), true);
  assert.equal(values.isCelError(new Error("no")), false);
});

const inward = [
  { name: "a whole number is an int", input: 5, value: 5n },
  { name: "minus zero is an int", input: -0, value: 0n },
  { name: "a fraction is a double", input: 0.5, value: 0.5 },
  { name: "a number beyond the safe range is a double", input: 2 ** 53, value: 2 ** 53 },
  { name: "a bigint is an int", input: 7n, value: 7n },
  { name: "null stays null", input: null, value: null },
  { name: "a string stays a string", input: "x", value: "x" },
];
for (const { name, input, value } of inward) {
  test(`toCel: ${name}`, () => assert.equal(toCel(input), value));
}

for (const input of [undefined, () => 1, Symbol("s")]) {
  test(`toCel refuses a ${typeof input}`, () => assert.throws(() => toCel(input), /cannot be read/));
}

test("a map has what is its own and defined, and nothing else", () => {
  const map = toCel({ a: 1, b: undefined, c: null, d: () => 1, __proto__: { e: 1 } });
  assert.ok(isCelMap(map));
  assert.deepEqual([...map.keys()], ["a", "c"]);
  assert.equal(map.size, 2);
  const present = ["a", "b", "c", "d", "e", "toString"].filter((key) => map.has(key));
  assert.deepEqual(present, ["a", "c"]);
  assert.equal(map.get(1n), undefined);
});

test("a map and a list convert what is read, when it is read", () => {
  let reads = 0;
  const big = {
    get first() {
      reads++;
      return { deep: 1 };
    },
    get second() {
      reads++;
      return 2;
    },
  };
  const map = toCel({ big, list: [big, big] });
  assert.ok(isCelMap(map));
  const list = map.get("list");
  assert.ok(isCelList(list));
  assert.equal(list.size, 2);
  const inner = list.get(1);
  assert.equal(reads, 0);
  assert.ok(isCelMap(inner));
  inner.get("first");
  assert.equal(reads, 1);
});

test("a list keeps the place of a hole as null and has nothing outside its bounds", () => {
  const list = toCel([1, undefined]);
  assert.ok(isCelList(list));
  assert.deepEqual(
    [list.get(0), list.get(1), list.get(2), list.get(-1), list.get(0.5)],
    [1n, null, undefined, undefined, undefined],
  );
});

const outward: { name: string; value: CelInput; output: unknown }[] = [
  { name: "an int within the safe range is a number", value: 5n, output: 5 },
  { name: "an int beyond it is a string", value: 2n ** 62n, output: "4611686018427387904" },
  { name: "a uint is a number", value: celUint(5n), output: 5 },
  { name: "a double is a number", value: 1.5, output: 1.5 },
  { name: "what JSON has no number for is a string", value: Number.NaN, output: "NaN" },
  { name: "bytes are base64", value: new Uint8Array([104, 105]), output: "aGk=" },
  { name: "a list is an array", value: celList([1n, celList(["a"])]), output: [1, ["a"]] },
  {
    name: "keys of a map become strings",
    value: celMap(
      new Map<bigint | boolean, CelInput>([
        [1n, "a"],
        [true, "b"],
      ]),
    ),
    output: { "1": "a", true: "b" },
  },
];
for (const { name, value, output } of outward) {
  test(`fromCel: ${name}`, () => assert.deepEqual(fromCel(value as Parameters<typeof fromCel>[0]), output));
}

test("a JSON tree survives the way in and out", () => {
  const tree = { a: [1, 2.5, "x", null, true, { b: [] }], c: {}, d: -3 };
  assert.deepEqual(fromCel(toCel(tree)), tree);
});

test("a date is a timestamp in RFC 3339", () => {
  assert.equal(fromCel(toCel(new Date("2026-01-02T03:04:05.006Z"))), "2026-01-02T03:04:05.006Z");
});

test("what contains itself, or is too large, is refused instead of running on", () => {
  const loop: Record<string, unknown> = {};
  loop.both = [loop, loop];
  assert.throws(() => fromCel(toCel(loop)), /too (deeply|large)/);
  assert.throws(() => fromCel(toCel([1, 2, 3]), 3), /too large/);
  assert.throws(() => fromCel(toCel("x".repeat(1000)), 10), /too large/);
});
