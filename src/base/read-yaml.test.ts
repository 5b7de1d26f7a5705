import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError, type InputProblem, PEER_INPUTS, type PeerInput, peerInput } from "./peer-inputs.ts";
import { readLooseYaml, readYaml, readYamlDocuments } from "./read-yaml.ts";

const INPUT = peerInput("file/kubeconfig");
const ENTRIES = PEER_INPUTS.filter((input): input is PeerInput<"YAML"> => input.reader === "YAML");

test("a text is read as YAML 1.2", () => {
  assert.deepEqual(readYaml(INPUT, "a: 1\nb: [x, yes, 'c']\nd: &d {e: ~}\nf: *d\n"), {
    a: 1,
    b: ["x", "yes", "c"],
    d: { e: null },
    f: { e: null },
  });
  for (const empty of ["", "\n", "# comment\n", "---\n"]) assert.equal(readYaml(INPUT, empty), null);
});

test("syntax errors name their place", () => {
  assert.throws(() => readYaml(INPUT, "a: 1\nb: [\n"), /at line 3, column 1$/);
  assert.throws(
    () => readYaml(INPUT, "a: 1\nb: 2\na: 3\n"),
    /^InputError: Map keys must be unique at line 3, column 1$/,
  );
  assert.throws(() => readYaml(INPUT, "a: 1\n---\nb: 2\n"), /contains several documents/);
  assert.throws(() => readYaml(INPUT, "a: *b\n"), InputError);
});

const CYCLES = [
  "&a [*a]",
  "a: &a\n  b: *a",
  "&a\n: *a",
  "- &a {b: [{c: *a}]}",
  "&a {b: &b [*b]}",
  "a: &a [&b [*a, *b]]",
];

test("an alias inside its own anchor is rejected, because its value would be infinite", () => {
  for (const text of CYCLES)
    for (const read of [readYaml, readLooseYaml]) assert.throws(() => read(INPUT, text), InputError, text);
  const shared = [{ x: 1 }];
  assert.deepEqual(readYaml(INPUT, "a: &a [{x: 1}]\nb: *a\nc: [*a, *a]"), {
    a: shared,
    b: shared,
    c: [shared, shared],
  });
});

test("names that are objects are read without a warning that quotes them", async (t) => {
  const warnings: Error[] = [];
  const add = (warning: Error): void => void warnings.push(warning);
  process.on("warning", add);
  t.after(() => process.off("warning", add));
  assert.deepEqual(readYaml(INPUT, "? [secret]\n: 1"), { "[ secret ]": 1 });
  assert.deepEqual(readLooseYaml(INPUT, "? {a: secret}\n: 1"), { "{ a: secret }": 1 });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(warnings, []);
});

test("a loose text may repeat names and have errors", () => {
  assert.deepEqual(readLooseYaml(INPUT, "a: 1\na: 2\n"), { a: 2 });
  assert.deepEqual(readLooseYaml(INPUT, "a: 1\n---\nb: 2\n"), { a: 1 });
});

test("equal names are errors of a document, for every kind of scalar", () => {
  const errors = (text: string): number => readYamlDocuments(INPUT, text).flatMap((one) => one.errors).length;
  for (const text of ["a: 1\na: 2", "{a: 1, 'a': 2}", "1: a\n1: b", "x: {a: 1, a: 2}", "? |\n  a\n: 1\n? |\n  a\n: 2"])
    assert.equal(errors(text), 1, text);
  for (const text of ["a: 1\nA: 2", "1: a\n'1': b", "a: {b: 1}\nc: {b: 1}"]) assert.equal(errors(text), 0, text);
});

for (const input of ENTRIES) {
  test(`${input.id} limits size, items, depth, and aliases`, () => {
    const small = input.upTo(100);
    assert.equal(readYaml(small, "x".repeat(100)), "x".repeat(100));
    rejects(small, "x".repeat(101), "bytes");
    const few = input.upToItems(100);
    for (const text of ["- a\n", "-\n", "a,", "'a',", '"a",', "[],", "{},"]) {
      const list = (count: number): string => (text.endsWith(",") ? `[${text.repeat(count)}]` : text.repeat(count));
      assert.equal((readYaml(few, list(40)) as unknown[]).length, 40);
      rejects(few, list(101), "items");
    }
    const { maxDepth } = input;
    const levels = maxDepth / 2;
    for (const [open, close] of [
      ["[", "]"],
      ["{a: ", "}"],
      ["- ", ""],
    ] as const)
      assert.ok(readYaml(input, `${open.repeat(levels)}x${close.repeat(levels)}`) !== null);
    for (const open of ["[", "{a: ", "- ", "? "]) rejects(input, open.repeat(5_000), "depth");
    rejects(input, Array.from({ length: 1_200 }, (_, i) => `${" ".repeat(i)}a:\n`).join(""), "depth");
    const layers = Array.from({ length: 12 }, (_, i) => `a${i}: &a${i} [${`*a${i - 1},`.repeat(i === 0 ? 0 : 9)}x]\n`);
    rejects(input, layers.join(""), "items");
  });
}

function rejects(input: PeerInput<"YAML">, text: string, problem: InputProblem): void {
  assert.throws(
    () => readYaml(input, text),
    (error) => error instanceof InputError && error.input === input && error.problem === problem,
    `${problem}: ${text.slice(0, 20)}`,
  );
}

test("every function reads a text with carriage returns as the same value", () => {
  // JSON allows a carriage return between tokens. The library keeps it as a character unless a line feed follows.
  for (const text of ['{"a":\r1,\r"b":2}', '\r{"a":[1,\r2]}', '{"a": 1,\r\n"b": 2}', "a: 1\r\nb: 2\r\n", "a: x\ry\n"])
    for (const input of ENTRIES) {
      const value = readYaml(input, text);
      assert.deepEqual(readLooseYaml(input, text), value, text);
      const [document, ...others] = readYamlDocuments(input, text, { stringKeys: true });
      assert.deepEqual([document?.toJS(), others.length], [value, 0], text);
    }
  for (const text of ['{\r"a": "b"\r}', '{"a":1}\r', "a: 1\rb: 2\n"])
    for (const input of ENTRIES) {
      assert.throws(() => readYaml(input, text), InputError, text);
      assert.ok(
        readYamlDocuments(input, text).some(({ errors }) => errors.length > 0),
        text,
      );
    }
});
