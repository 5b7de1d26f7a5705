import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../base/peer-inputs.ts";
import { type Member, members } from "./json-text.ts";
import { jsonProblem } from "./validate-json.ts";

const MESSAGE = peerInput("mcp-server/http-response");

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const broken = [
  "",
  " ",
  "{",
  "}",
  "[1,]",
  "[,1]",
  "[1 2]",
  '{"a"}',
  '{"a":}',
  '{"a":1,}',
  "{a:1}",
  "{'a':1}",
  '{"a":1}}',
  '{"a":1]',
  "[1}",
  '{"a":bad}',
  "nul",
  "nulll",
  "truefalse",
  "01",
  "-",
  "-a",
  "1.",
  ".5",
  "1e",
  "1e+",
  "+1",
  "0x1",
  "NaN",
  "Infinity",
  '"',
  '"\\"',
  '"\\x"',
  '"\\u12g4"',
  '"\\u12',
  '"\t"',
  '"\n"',
  "\u00a01",
  "\ufeff1",
  "1 1",
  "[1]\0",
  "/* a */1",
];
for (const text of broken) {
  test(`${JSON.stringify(text)} is not valid`, () => {
    assert.equal(parses(text), false);
    assert.notEqual(jsonProblem(MESSAGE, text), undefined);
  });
}

const fine = [
  "1",
  " 0 ",
  "-0",
  "1e999",
  "1E-2",
  "1.50e+10",
  '"\\ud800"',
  '"\\u00e9\\n\\/"',
  "[]",
  "[ ]",
  "{}",
  "{ }",
  '{"a":{},"b":[{},[]]}',
  '{"a":1,"b":{"a":2}}',
  '[{"a":1},{"a":1}]',
  "\r\n\t[null,true,false]\n",
];
for (const text of fine) {
  test(`${JSON.stringify(text)} is valid`, () => {
    assert.equal(parses(text), true);
    assert.equal(jsonProblem(MESSAGE, text), undefined);
  });
}

test("the result agrees with JSON.parse for any modification of the text", () => {
  const edits = fc.array(
    fc.tuple(
      fc.nat(),
      fc.constantFrom("", '"', "\\", "{", "}", "[", "]", ",", ":", "0", "-", "e", " ", "\n", "\u0001"),
    ),
    { maxLength: 3 },
  );
  fc.assert(
    fc.property(fc.jsonValue(), edits, fc.boolean(), (value, changes, isSpaced) => {
      let text = JSON.stringify(value, null, isSpaced ? 1 : 0);
      for (const [at, put] of changes) {
        const place = at % (text.length + 1);
        // Inserts something, or removes a character.
        text =
          put === "" ? text.slice(0, place) + text.slice(place + 1) : text.slice(0, place) + put + text.slice(place);
      }
      const problem = jsonProblem(MESSAGE, text);
      if (problem?.includes("repeated") === true || problem?.includes("deeper") === true) return;
      assert.equal(problem === undefined, parses(text), `${text} ${problem}`);
    }),
    { numRuns: 2_000 },
  );
});

test("the top-level members are those that a second scan finds", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.boolean(), fc.boolean(), (value, isSpaced, isList) => {
      const text = ` ${JSON.stringify(isList ? [value] : value, null, isSpaced ? "\t" : 0)}\n`;
      const top: Member[] = [];
      assert.equal(jsonProblem(MESSAGE, text, top), undefined);
      assert.deepEqual(top, members(text, 0));
    }),
    { numRuns: 1_000 },
  );
});

test("a repeated key is found at any depth, even if it is escaped differently", () => {
  for (const text of ['{"a":1,"a":2}', '[{"b":{"a":1,"\\u0061":2}}]', '{"a":{},"b":{"x":1},"a":3}'])
    assert.match(jsonProblem(MESSAGE, text) ?? "", /the key "a" is repeated/);
  const many = Array.from({ length: 100 }, (_, i) => `"k${i}":{"k1":0}`).join(",");
  assert.equal(jsonProblem(MESSAGE, `{${many}}`), undefined);
  assert.match(jsonProblem(MESSAGE, `{${many},"k7":1}`) ?? "", /"k7" is repeated/);
  assert.match(jsonProblem(MESSAGE, `[{${many}},{${many},"k99":1}]`) ?? "", /"k99" is repeated/);
  const object = (prefix: string, last: string): string =>
    `{${Array.from({ length: 33 }, (_, i) => `"${prefix}${i}":0`).join(",")},"${last}":1}`;
  assert.equal(jsonProblem(MESSAGE, `[${object("a", "x")},${object("b", "a1")}]`), undefined);
  assert.match(jsonProblem(MESSAGE, `[${object("a", "x")},${object("b", "b1")}]`) ?? "", /"b1" is repeated/);
});

test("nesting has a limit, and a document below it does not exhaust the stack", () => {
  assert.equal(jsonProblem(MESSAGE, "[".repeat(256) + "]".repeat(256)), undefined);
  assert.match(jsonProblem(MESSAGE, "[".repeat(257) + "]".repeat(257)) ?? "", /nested deeper than 256 levels/);
  assert.match(jsonProblem(MESSAGE, '{"a":'.repeat(1_000_000)) ?? "", /nested deeper/);
});
