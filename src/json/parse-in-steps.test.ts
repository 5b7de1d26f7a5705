import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../base/peer-inputs.ts";
import { finish } from "../base/sliced-work.ts";
import { readMembersInSteps, stringifyInSteps } from "./parse-in-steps.ts";
import { readMembers } from "./read-json.ts";

const BODY = peerInput("llm-provider/response");

const filler = JSON.stringify(Array.from({ length: 900 }, (_, i) => `item ${i}, "q" é`));
const many = Array.from({ length: 5_000 }, (_, i) => ({ [`k${i}`]: [i, null, true, -1.5e10, "a,b]}", '"\\', "😀"] }));
const values: [name: string, value: unknown][] = [
  ["nothing large", { a: 1 }],
  ["a list of objects", many],
  ["lists in lists", [[many, [many]], "x", [], {}]],
  ["many members", Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`key ${i} "`, i]))],
  ["a long text", 'x\\"{[,é'.repeat(20_000)],
  ["names that mean something", JSON.parse(`{"__proto__":${filler},"1":1,"":{"__proto__":1},"constructor":${filler}}`)],
];
for (const [name, x] of values) {
  for (const indent of [undefined, 1]) {
    test(`parses and writes as JavaScript does: ${name}${indent ? ", indented" : ""}`, () => {
      const text = JSON.stringify({ before: 0, x, y: [x], after: [] }, null, indent);
      const parsed = finish(readMembersInSteps(BODY, Buffer.from(text)));
      assert.deepEqual(parsed, JSON.parse(text));
      assert.equal(finish(stringifyInSteps(parsed)), JSON.stringify(JSON.parse(text)));
    });
  }
}

test("members that are undefined are not written", () => {
  const value = {
    a: undefined,
    b: [undefined, ...many],
    c: Object.fromEntries(many.map((_, i) => [`u${i}`, undefined])),
    d: 1,
  };
  assert.equal(finish(stringifyInSteps(value)), JSON.stringify(value));
});

test("it parses exactly what JavaScript parses", () => {
  const inserted = [
    "",
    " ",
    ",",
    "]",
    "}",
    "[",
    "{",
    '"',
    ":",
    "1",
    "null,",
    "\u00a0",
    "\u0001",
    '"a":1,',
    "\\",
    "x",
    "-",
  ];
  const texts = [
    `{"a":${filler}}`,
    `{"a":1,"b":${filler},"c":2}`,
    `{"a":[1,${filler},2,${filler}],"b":{"c":${filler}}}`,
    `{${Array.from({ length: 2_000 }, (_, i) => `"k${i}":[${i}]`).join(",")}}`,
    `{"a":[${"{},".repeat(5_600)}{}]}`,
    `{"a":[[[[${filler}]]],[]]}`,
    `{"a":[${" ".repeat(20_000)}],"b":{${"\n".repeat(20_000)}}}`,
  ];
  for (const text of texts) {
    const places = [
      0,
      1,
      2,
      4,
      5,
      6,
      7,
      text.length - 1,
      text.length - 2,
      text.length - 3,
      text.length,
      text.indexOf("]") + 1,
      text.indexOf("["),
      text.indexOf("[") + 1,
    ];
    for (const at of places)
      for (const one of inserted) {
        const changed = text.slice(0, at) + one + text.slice(at);
        const parsed = finish(readMembersInSteps(BODY, Buffer.from(changed)));
        assert.equal(
          JSON.stringify(parsed),
          JSON.stringify(readMembers(BODY, changed)),
          `${JSON.stringify(one)} at ${at} of ${text.slice(0, 20)}`,
        );
      }
  }
});

test("no step takes long", () => {
  const bytes = Buffer.from(
    `{"a":[${"{},".repeat(400_000)}{}],"b":{${Array.from({ length: 50_000 }, (_, i) => `"k${i}":${i}`).join(",")}}}`,
  );
  let steps = 0;
  const parsing = readMembersInSteps(BODY, bytes);
  let step = parsing.next();
  for (; step.done !== true; step = parsing.next()) steps += 1;
  assert.ok(steps > bytes.length / 40_000, String(steps));
  const writing = stringifyInSteps(step.value);
  let writes = 0;
  while (writing.next().done !== true) writes += 1;
  assert.ok(writes > 150, String(writes));
});

test("text that is nested deeper than the entry allows is not parsed", () => {
  const input = peerInput("llm-provider/response");
  const nested = (levels: number, [open, close]: readonly [string, string]): Buffer =>
    Buffer.from(`{"a":"[[","b":${open.repeat(levels - 1)}1${close.repeat(levels - 1)}}`);
  for (const brackets of [
    ["[", "]"],
    ['{"a":', "}"],
  ] as const) {
    assert.ok(finish(readMembersInSteps(input, nested(input.maxDepth, brackets))));
    for (const levels of [input.maxDepth + 1, 1_000_000])
      assert.equal(finish(readMembersInSteps(input, nested(levels, brackets))), undefined);
  }
});
