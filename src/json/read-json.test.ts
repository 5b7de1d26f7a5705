import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError, PEER_INPUTS, type PeerInput, peerInput } from "../base/peer-inputs.ts";
import { finish } from "../base/sliced-work.ts";
import { MAX_NUMBER_CHARS } from "./parse-cost.ts";
import { readMembersInSteps } from "./parse-in-steps.ts";
import { type ParsedTexts, readCounted, readInspected, readJson, readMembers, tryReadJson } from "./read-json.ts";

const DOCUMENT = peerInput("identity-provider/discovery");
const MANY = DOCUMENT.maxItems + 1;

for (const [name, text] of [
  ["empty objects", `[${"{},".repeat(MANY)}1]`],
  ["numbers", `[${"1,".repeat(MANY)}1]`],
  ["lists", `[${"[],".repeat(MANY)}1]`],
  ["names", `{${Array.from({ length: MANY }, (_, i) => `"k${i}":1`).join()}}`],
] as const) {
  test(`a document of very many values is rejected before it is parsed: ${name}`, () => {
    const expected = { name: "InputError", problem: "items", message: "has more than 50000 values and names" };
    assert.throws(() => readJson(DOCUMENT, text), expected);
    assert.throws(() => readJson(DOCUMENT, Buffer.from(text)), expected);
    assert.equal(tryReadJson(DOCUMENT, text), undefined);
    assert.equal(readMembers(DOCUMENT, text), undefined);
  });
}

test("a long string is one value, however many brackets it contains", () => {
  const value = { text: "[{,:".repeat(MANY) };
  assert.deepEqual(readJson(DOCUMENT, JSON.stringify(value)), value);
});

test("text that is not JSON is reported as such, and never quoted", () => {
  for (const text of ["", "{", "[1,]", "undefined", '{"token":"secret"'])
    assert.throws(() => readJson(DOCUMENT, text), { problem: "form", message: "is not JSON" }, text);
});

test("short strings have the value that the parser gives them", () => {
  const parts = [
    "a",
    '"',
    "\\",
    "\n",
    "\u0000",
    "\u001f",
    " ",
    "\u007f",
    "\u2028",
    "é",
    "\ud800",
    "n",
    "u0041",
    "x".repeat(62),
  ];
  for (const [one, two] of parts.flatMap((a) => parts.map((b) => [a, b] as const)))
    for (const text of [`"${one}${two}"`, `"${one}${two}`, `${one}"${two}"`, `"${one}"${two}`, `"${one}""${two}"`]) {
      let expected: unknown;
      try {
        expected = JSON.parse(text);
      } catch {
        // Not JSON.
      }
      assert.equal(tryReadJson(DOCUMENT, text), expected, JSON.stringify(text));
    }
});

test("only objects are read as members", () => {
  assert.deepEqual(readMembers(DOCUMENT, Buffer.from('{"a":1}')), { a: 1 });
  assert.deepEqual(readMembers(DOCUMENT, ' \n{"a":1}'), { a: 1 });
  for (const text of ["[]", "null", "1", '"a"', "{", "", " ", "[DONE]", "[".repeat(MANY)]) {
    assert.equal(readMembers(DOCUMENT, Buffer.from(text)), undefined, text.slice(0, 10));
    assert.equal(readMembers(DOCUMENT, text), undefined, text.slice(0, 10));
  }
});

const REGISTRATION = peerInput("client/registration");

test("nesting is limited to the depth of the entry, and brackets in strings do not nest", () => {
  const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`;
  assert.deepEqual(readJson(REGISTRATION, nested(16)), JSON.parse(nested(16)));
  assert.throws(() => readJson(REGISTRATION, nested(17)), {
    problem: "depth",
    message: "is nested deeper than 16 levels",
  });
  const wide = `[${"[],".repeat(1_000)}"${"[".repeat(1_000)}"]`;
  assert.deepEqual(readJson(REGISTRATION, wide), JSON.parse(wide));
});

test("parts of messages and API descriptions are limited in depth, because deep lists take long", () => {
  for (const id of ["client/mcp-part", "openapi-server/description"] as const) {
    const input = peerInput(id);
    const nested = (levels: number): string => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    assert.deepEqual(readJson(input, nested(input.maxDepth)), JSON.parse(nested(input.maxDepth)));
    assert.throws(() => readJson(input, nested(input.maxDepth + 1)), { problem: "depth" }, id);
  }
});

test("an inspected text has no longer number than other JSON", () => {
  const input = peerInput("client/mcp-message");
  const longest = "1".repeat(MAX_NUMBER_CHARS);
  assert.ok(readInspected(input, `{"a":${longest},"b":"${longest}1"}`).value);
  for (const number of [`${longest}1`, `-${longest}1`, `0.${longest}1`])
    assert.throws(() => readInspected(input, `{"a":${number}}`), {
      problem: "form",
      message: /more than 10000 digits/,
    });
});

const JSON_INPUTS = PEER_INPUTS.filter((input): input is PeerInput<"JSON"> => input.reader === "JSON");

test("every JSON input is limited to the bytes of its entry, by every reader", () => {
  assert.ok(JSON_INPUTS.length > 50);
  for (const whole of JSON_INPUTS) {
    const input = whole.upTo(64);
    const fits = `{"a":"${"x".repeat(56)}"}`;
    const tooLong = `${fits} `;
    const error = { name: "InputError", problem: "bytes", message: "is larger than 64 bytes" };
    assert.ok(tryReadJson(input, fits) !== undefined && tryReadJson(input, Buffer.from(fits)) !== undefined, input.id);
    assert.ok(readInspected(input, fits).value !== undefined, input.id);
    for (const read of [
      () => readJson(input, tooLong),
      () => readJson(input, Buffer.from(tooLong)),
      () => readInspected(input, tooLong),
      () => finish(readMembersInSteps(input, Buffer.from(tooLong))),
    ])
      assert.throws(read, error, input.id);
    assert.equal(tryReadJson(input, tooLong), undefined);
    assert.equal(readMembers(input, tooLong), undefined);
  }
});

test("every limit of items in the list is enforced", () => {
  for (const input of JSON_INPUTS) {
    if (input.limits.items === undefined) continue;
    const text = `{"a":[${"1,".repeat(input.maxItems)}1]}`;
    assert.throws(() => readJson(input, text), InputError, input.id);
    assert.throws(() => finish(readMembersInSteps(input, Buffer.from(text))), InputError, input.id);
  }
});

test("several texts have the items of the entry together, with those that are not JSON", () => {
  const input = peerInput("client/llm-tool-arguments").upToItems(10);
  const counted: ParsedTexts = {};
  assert.deepEqual(readCounted(input, "[1,2,3]", counted), [1, 2, 3]);
  assert.throws(() => readCounted(input, "[1,2,", counted), { problem: "form" });
  assert.equal(counted.parsedItems, 6);
  assert.deepEqual(readCounted(input, '{"a":1}', counted), { a: 1 });
  assert.throws(() => readCounted(input, "[1,2]", counted), { problem: "items" });
  assert.throws(() => readCounted(input, "[".repeat(9), { parsedItems: 3 }), { problem: "items" });
});

test("texts of every JSON input are limited in depth, unless a message or a scanner limits them", () => {
  const unlimited = JSON_INPUTS.filter(({ maxDepth }) => maxDepth === Number.POSITIVE_INFINITY).map(({ id }) => id);
  assert.deepEqual(unlimited, [
    "client/charged-body",
    "mcp-server/error",
    "mcp-server/about",
    "mcp-server/part",
    "mcp-server/locked-tool",
    "mcp-server/tool-list",
    "gateway/mcp-message",
    "gateway/redacted-value",
    "gateway/kept-trace",
    "gateway/recorded-attributes",
  ]);
  const limited = JSON_INPUTS.filter(({ maxDepth, maxBytes }) => maxDepth * 2 + 2 <= maxBytes);
  assert.ok(limited.length > 60);
  for (const input of limited) {
    const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
    assert.ok(Array.isArray(readJson(input, nested(input.maxDepth))), input.id);
    assert.throws(() => readJson(input, nested(input.maxDepth + 1)), { problem: "depth" }, input.id);
  }
});
