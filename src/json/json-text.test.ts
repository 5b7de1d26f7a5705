import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../base/peer-inputs.ts";
import { elements, find, insertMembers, members, removeMembers, singleLine, slice, splice } from "./json-text.ts";
import { inspectDocument } from "./validate-json.ts";

const MESSAGE = peerInput("client/mcp-message");

test("finds the members of an object, whatever is between them", () => {
  const text = ' { "a" : [1, {"x": "}"}] ,\n"b\\u0063":"\\"",  "d":-1.5e3 } ';
  const found = members(text, 0).map((one) => [one.key, slice(text, one)]);
  assert.deepEqual(found, [
    ["a", '[1, {"x": "}"}]'],
    ["bc", '"\\""'],
    ["d", "-1.5e3"],
  ]);
});

test("finds the elements of an array", () => {
  const text = '[ 1 , "a,]" , {"b":[2]} , [] , null ]';
  const found = elements(text, 0).map((one) => slice(text, one));
  assert.deepEqual(found, ["1", '"a,]"', '{"b":[2]}', "[]", "null"]);
});

test("finds a value along a path, and nothing where there is none", () => {
  const text = '{"params":{"_meta":{"io.x/y":"z"},"name":"n"}}';
  assert.equal(slice(text, find(text, 0, "params", "_meta", "io.x/y") ?? { start: 0, end: 0 }), '"z"');
  assert.equal(find(text, 0, "params", "missing", "y"), undefined);
  assert.equal(find(text, 0, "params", "name", "deeper"), undefined);
});

const insertions = [
  { into: "{}", result: '{"a":1}' },
  { into: "{ }", result: '{"a":1 }' },
  { into: '{"b":2}', result: '{"a":1,"b":2}' },
];
for (const { into, result } of insertions) {
  test(`inserts a member into ${into}`, () => {
    assert.equal(splice(into, [insertMembers(into, 0, '"a":1')]), result);
  });
}

const removals = [
  { from: '{"a":1,"b":2,"c":3}', result: '{"a":1,"c":3}' },
  { from: '{"b":2}', result: "{}" },
  { from: '{"a":1}', result: '{"a":1}' },
  { from: '{ "a" : 1 , "b" : [2] }', result: '{ "a" : 1 }' },
];
for (const { from, result } of removals) {
  test(`removes b from ${from}`, () => {
    assert.equal(
      splice(
        from,
        removeMembers(from, 0, (key) => key === "b"),
      ),
      result,
    );
  });
}

const hostile = [
  { name: "a repeated key", text: '{"a":1,"a":2}', problem: /"a" is repeated/ },
  { name: "a repeated key in a nested object", text: '{"p":{"x":[{"k":1,"k":1}]}}', problem: /"k" is repeated/ },
  {
    name: "a key that is repeated in another spelling",
    text: '{"name":1,"n\\u0061me":2}',
    problem: /"name" is repeated/,
  },
  { name: "deep nesting", text: `${"[".repeat(65)}1${"]".repeat(65)}`, problem: /nested deeper than 64/ },
  { name: "deep nesting that does not even close", text: "[".repeat(100_000), problem: /nested deeper/ },
  {
    name: "a repeated key among thousands",
    text: `{${Array.from({ length: 5000 }, (_, i) => `"k${i}":1`).join(",")},"k7":2}`,
    problem: /"k7" is repeated/,
  },
];
for (const { name, text, problem } of hostile) {
  test(`rejects${name}`, () => {
    assert.match(inspectDocument(MESSAGE, text).problem ?? "", problem);
  });
}

const harmless = [
  { name: "the same key in different objects", text: '{"a":{"k":1},"b":{"k":2},"c":[{"k":3},{"k":4}]}' },
  { name: "nesting at the limit", text: `${"[".repeat(64)}1${"]".repeat(64)}` },
  { name: "brackets and quotes inside strings", text: '{"a":"{\\"a\\":[[[","b":"\\\\"}' },
  {
    name: "large objects after each other",
    text: `[${["a", "b"].map((p) => `{${Array.from({ length: 100 }, (_, i) => `"${p}${i}":1`).join(",")}}`).join(",")}]`,
  },
];
for (const { name, text } of harmless) {
  test(`accepts ${name}`, () => {
    assert.equal(inspectDocument(MESSAGE, text).problem, undefined);
  });
}

test("a message may have sixty thousand values and names, and no more", () => {
  const keys = (count: number): string => `{${Array.from({ length: count }, (_, i) => `"${i}":1`).join(",")}}`;
  assert.equal(inspectDocument(MESSAGE, keys(19_999)).problem, undefined);
  assert.match(inspectDocument(MESSAGE, keys(20_001)).problem ?? "", /more than 60000 values and names/);
  assert.equal(inspectDocument(MESSAGE, `[${"[],".repeat(29_000)}"${"[,".repeat(100_000)}"]`).problem, undefined);
  for (const value of ["1", "{}", "[]"])
    assert.match(inspectDocument(MESSAGE, `[${`${value},`.repeat(60_001)}1]`).problem ?? "", /more than 60000/);
});

const json = fc.jsonValue({ maxDepth: 6 });

test("the search finds what a parser finds, for any JSON", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), json), fc.constantFrom(undefined, 1, "\t"), (value, space) => {
      const text = JSON.stringify(value, null, space);
      const parsed = JSON.parse(text) as Record<string, unknown>;
      const spans = inspectDocument(MESSAGE, text).top;
      assert.deepEqual(
        spans.map((one) => [one.key, JSON.parse(slice(text, one))]),
        Object.entries(parsed),
      );
      assert.deepEqual(
        members(text, 0).map((one) => [one.key, JSON.parse(slice(text, one))]),
        Object.entries(parsed),
      );
    }),
  );
});

test("an edit changes only its place, for any JSON", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), json), fc.string(), json, (value, key, added) => {
      fc.pre(!Object.hasOwn(value, key) && key !== "__proto__");
      const text = JSON.stringify(value);
      const changed = splice(text, [insertMembers(text, 0, `${JSON.stringify(key)}:${JSON.stringify(added)}`)]);
      assert.deepEqual(JSON.parse(changed), JSON.parse(JSON.stringify({ ...value, [key]: added })));
      const back = splice(
        changed,
        removeMembers(changed, 0, (one) => one === key),
      );
      assert.deepEqual(JSON.parse(back), JSON.parse(text));
    }),
  );
});

test("every function terminates on text that is not JSON", () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      members(text, 0);
      elements(text, 0);
      inspectDocument(MESSAGE, text);
      find(text, 0, "a", "b");
    }),
  );
});

test("keys of one large object are not taken for those of the next", () => {
  const object = (prefix: string, last: string): string =>
    `{${Array.from({ length: 33 }, (_, i) => `"${prefix}${i}":0`).join(",")},"${last}":1}`;
  assert.equal(inspectDocument(MESSAGE, `[${object("a", "x")},${object("b", "a1")}]`).problem, undefined);
  assert.match(
    inspectDocument(MESSAGE, `[${object("a", "x")},${object("b", "b1")}]`).problem ?? "",
    /"b1" is repeated/,
  );
});

/** Characters that line readers treat as line ends and that JSON.stringify does not escape, or adds itself. */
const ANY_LINE_END = /[\n\r\u0085\u2028\u2029]/;

test("JSON of any form and content is one line for every reader and has the same meaning [P37]", () => {
  const strings = fc.string({
    unit: fc.constantFrom("\u2028", "\u2029", "\u0085", "\n", "\r", "\\", '"', "u2028", "é", "𝄞", "a"),
  });
  const values = fc.oneof(
    strings,
    fc.array(strings),
    fc.dictionary(strings, fc.oneof(strings, fc.dictionary(strings, strings))),
  );
  fc.assert(
    fc.property(values, fc.constantFrom("", "  "), (value, indent) => {
      const text = JSON.stringify(value, null, indent);
      const line = singleLine(text);
      assert.doesNotMatch(line, ANY_LINE_END);
      assert.deepEqual(JSON.parse(line), JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});
