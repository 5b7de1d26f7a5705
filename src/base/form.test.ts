import assert from "node:assert/strict";
import { test } from "node:test";
import { constantRegExp } from "./constant-regexp.ts";
import { addToQuery, newForm, readForm, readFormPairs } from "./form.ts";
import { InputError, type InputProblem, PEER_INPUTS, type PeerInput, peerInput } from "./peer-inputs.ts";
import { compileRe2, linearRegex } from "./regex.ts";

const LOGIN = peerInput("client/login-form");
const ENTRIES = PEER_INPUTS.filter((input): input is PeerInput<"form"> => input.reader === "form");

test("fields keep their order, and pairs keep the original text", () => {
  const text = "a=1&b=%20+x&a=2&&c&=d&?e=%zz";
  const fields = [...readForm(LOGIN, text)];
  assert.deepEqual(fields, [
    ["a", "1"],
    ["b", "  x"],
    ["a", "2"],
    ["c", ""],
    ["", "d"],
    ["?e", "%zz"],
  ]);
  const pairs = readFormPairs(LOGIN, text);
  assert.deepEqual(
    pairs.map(({ name, value }) => [name, value]),
    fields,
  );
  assert.equal(pairs.map(({ raw }) => raw).join("&"), "a=1&b=%20+x&a=2&c&=d&?e=%zz");
});

test("fields are written", () => {
  assert.equal(newForm({ a: "1&2", b: "é" }).toString(), "a=1%262&b=%C3%A9");
  assert.equal(
    newForm([
      ["a", "1"],
      ["a", "2"],
    ]).toString(),
    "a=1&a=2",
  );
  const url = new URL("https://a.example/?a=0");
  addToQuery(url, "append", [["a", "1"]]);
  assert.equal(url.search, "?a=0&a=1");
  addToQuery(url, "set", [
    ["a", "2"],
    ["b", "3"],
  ]);
  assert.equal(url.search, "?a=2&b=3");
});

for (const input of ENTRIES) {
  test(`${input.id} limits size and number of fields`, () => {
    for (const read of [readForm, readFormPairs]) {
      assert.ok(read(input, `a=${"x".repeat(input.maxBytes - 2)}`));
      rejects(() => read(input, "x".repeat(input.maxBytes + 1)), input, "bytes");
      const few = input.upToItems(10);
      assert.ok(read(few, "a=1&".repeat(9)));
      for (const field of ["a=1&", "&", "a&", "=&"]) rejects(() => read(few, field.repeat(11)), few, "items");
    }
  });
}

test("patterns are limited", () => {
  for (const id of ["file/pattern", "client/computed-pattern"] as const) {
    const input = peerInput(id);
    for (const compile of [compileRe2, linearRegex]) {
      assert.equal(compile(input, "a".repeat(input.maxBytes)).test("b"), false);
      rejects(() => compile(input, "a".repeat(input.maxBytes + 1)), input, "bytes");
    }
  }
});

test("only constants become patterns of the platform", () => {
  const part = "b+";
  assert.match("abb", constantRegExp(`^a${part}$`));
  const text: string = part;
  // @ts-expect-error: the text is not known when the code is compiled
  assert.match("b", constantRegExp(text));
  // @ts-expect-error: a part is not known when the code is compiled
  assert.match("ab", constantRegExp(`a${text}`));
});

function rejects(read: () => unknown, input: PeerInput, problem: InputProblem): void {
  assert.throws(read, (error) => error instanceof InputError && error.input === input && error.problem === problem);
}
