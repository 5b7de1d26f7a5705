import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { peerInput } from "../base/peer-inputs.ts";
import { JsonScanner, jsonKeys } from "./json-scanner.ts";

const KEYS = ["model", "usage", "message.usage", "message.model"];

function scan(pieces: readonly Buffer[], keys = KEYS, maxValueBytes = 1000) {
  const found: [string, string | undefined, number][] = [];
  const scanner = new JsonScanner({
    keys: jsonKeys(...keys),
    maxValueBytes,
    input: peerInput("client/llm-request"),
    value: (key, span, bytes) => found.push([key, bytes?.toString(), span.end - span.start]),
  });
  for (const piece of pieces) scanner.push(piece);
  return { found: found.map(([key, text]) => [key, text]), scanner, spans: found };
}

const cases: { name: string; json: string; found: [string, string | undefined][]; wellFormed?: boolean }[] = [
  { name: "a string", json: '{"model":"a"}', found: [["model", '"a"']] },
  {
    name: "white space around everything",
    json: ' {\n "model" : "a" ,"usage": null }\n',
    found: [
      ["model", '"a"'],
      ["usage", "null"],
    ],
  },
  { name: "an object", json: '{"usage":{"a":{"b":[1,2]}},"x":1}', found: [["usage", '{"a":{"b":[1,2]}}']] },
  {
    name: "a value of an inner object only under its parent",
    json: '{"x":{"usage":1},"message":{"usage":2}}',
    found: [["message.usage", "2"]],
  },
  {
    name: "nothing in strings that look like members",
    json: '{"content":"\\"usage\\":{\\"total_tokens\\":9}, \\\\"}',
    found: [],
  },
  { name: "nothing in arrays of objects", json: '{"choices":[{"usage":1},{"model":"x"}]}', found: [] },
  { name: "a key written with escapes", json: '{"m\\u006fdel":"a"}', found: [["model", '"a"']] },
  {
    name: "every repeat",
    json: '{"model":"a","model":"b"}',
    found: [
      ["model", '"a"'],
      ["model", '"b"'],
    ],
  },
  {
    name: "objects of an outermost array",
    json: '[{"usage":1},{"usage":{"a":2}}]',
    found: [
      ["usage", "1"],
      ["usage", '{"a":2}'],
    ],
  },
  {
    name: "nothing two levels below the parent",
    json: '{"message":{"x":{"usage":1},"usage":3}}',
    found: [["message.usage", "3"]],
  },
  { name: "a value that follows a parent", json: '{"message":{"a":1},"model":"b"}', found: [["model", '"b"']] },
  { name: "a broken end", json: '{"model":"a', found: [], wellFormed: false },
  { name: "an unbalanced end", json: '{"model":"a"', found: [], wellFormed: false },
  {
    name: "something behind the end",
    json: '{"model":"a"} {"model":"b"}',
    found: [
      ["model", '"a"'],
      ["model", '"b"'],
    ],
    wellFormed: false,
  },
  { name: "one bracket too many", json: '{"model":"a"}}', found: [["model", '"a"']], wellFormed: false },
];

for (const { name, json, found, wellFormed = true } of cases) {
  test(`finds ${name}, whole and byte by byte`, () => {
    const bytes = Buffer.from(json);
    const whole = scan([bytes]);
    const split = scan([...bytes].map((byte) => Buffer.from([byte])));
    assert.deepEqual(whole.found, found);
    assert.deepEqual(split.found, found);
    assert.equal(whole.scanner.wellFormed, wellFormed);
    assert.equal(split.scanner.wellFormed, wellFormed);
  });
}

test("agrees with JSON.parse on any object, cut anywhere", () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.oneof(fc.constantFrom("model", "usage", "message"), fc.string()), fc.jsonValue()),
      fc.nat(),
      fc.boolean(),
      (object, at, pretty) => {
        const bytes = Buffer.from(JSON.stringify(object, null, pretty ? 2 : undefined));
        const cut = at % (bytes.length + 1);
        const { found, scanner } = scan([bytes.subarray(0, cut), bytes.subarray(cut)], KEYS, 1e6);
        assert.equal(scanner.wellFormed, true);
        const expected: Record<string, unknown> = {};
        for (const key of ["model", "usage"]) if (Object.hasOwn(object, key)) expected[key] = object[key];
        const message = object.message;
        if (typeof message === "object" && message !== null && !Array.isArray(message)) {
          for (const key of ["model", "usage"])
            if (Object.hasOwn(message, key)) expected[`message.${key}`] = (message as Record<string, unknown>)[key];
        }
        assert.deepEqual(
          Object.fromEntries(found.map(([key, text]) => [key, JSON.parse(text ?? "")])),
          JSON.parse(JSON.stringify(expected)),
        );
      },
    ),
  );
});

test("a value larger than the limit is reported without its bytes, and the scan continues", () => {
  const bytes = Buffer.from(`{"usage":{"x":"${"a".repeat(5000)}"},"model":"m"}`);
  const { found } = scan([bytes.subarray(0, 2000), bytes.subarray(2000)]);
  assert.deepEqual(found, [
    ["usage", undefined],
    ["model", '"m"'],
  ]);
});

test("nesting beyond the limit is invalid", () => {
  assert.equal(
    scan([Buffer.from(`{"a":${"[".repeat(1000)}${"]".repeat(1000)}}`)]).scanner.invalid,
    "nested too deeply",
  );
});

test("nesting is limited at the root, below a key that is read, and below others", () => {
  const { maxDepth } = peerInput("client/llm-request");
  const shapes = {
    "a list at the root": { around: 0, json: (inner: string) => inner },
    "a key that is read": { around: 1, json: (inner: string) => `{"usage":${inner}}` },
    "another key": { around: 1, json: (inner: string) => `{"other":${inner}}` },
    "a list of objects": { around: 2, json: (inner: string) => `[{"message":${inner}}]` },
  };
  for (const [name, { around, json }] of Object.entries(shapes))
    for (const [open, close] of [
      ["[", "]"],
      ['{"message":', "}"],
    ] as const) {
      const nested = (levels: number): string =>
        json(`${open.repeat(levels - around)}1${close.repeat(levels - around)}`);
      for (const pieceBytes of [1, Number.POSITIVE_INFINITY]) {
        const problem = (levels: number) => {
          const bytes = Buffer.from(nested(levels));
          const pieces = pieceBytes === 1 ? [...bytes].map((byte) => Buffer.from([byte])) : [bytes];
          return scan(pieces).scanner.invalid;
        };
        assert.equal(problem(maxDepth), undefined, `${name} ${open}`);
        assert.equal(problem(maxDepth + 1), "nested too deeply", `${name} ${open}`);
      }
    }
});

test("skips long strings with escapes at any position", () => {
  for (let padding = 80; padding < 110; padding++) {
    const { found } = scan([
      Buffer.from(JSON.stringify({ a: `${"x".repeat(padding)}"\\"${"y".repeat(300)}\\`, model: "m" })),
    ]);
    assert.deepEqual(found, [["model", '"m"']]);
  }
});
