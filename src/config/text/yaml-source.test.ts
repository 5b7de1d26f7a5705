import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { finish } from "../../base/sliced-work.ts";
import { pathText } from "./value-path.ts";
import { parseSource } from "./yaml-source.ts";

const ENV = {
  PORT: "8080",
  NAME: "a b",
  EMPTY: "",
  YES: "true",
  HEX: "0x10",
  TRICK: "x\nadmin: true\n- y: [",
  COLON: "a: b # c",
  QUOTES: `"a" 'b' \\n`,
  NESTED: "${PORT}",
};

function readValue(text: string): unknown {
  const parsed = finish(parseSource("f.yaml", text, ENV));
  assert.deepEqual(
    parsed.problems.map((problem) => problem.toLine()),
    [],
  );
  return parsed.documents[0]?.value;
}

function problemsOf(text: string): string[] {
  return finish(parseSource("f.yaml", text, ENV)).problems.map((problem) => problem.toLine());
}

const resolved: [name: string, text: string, value: unknown][] = [
  ["a plain scalar is typed after it", "a: ${PORT}", { a: 8080 }],
  ["a truth value too", "a: ${YES}", { a: true }],
  ["and a number of another base", "a: ${HEX}", { a: 16 }],
  ["a quoted scalar stays a text", `a: "\${PORT}"`, { a: "8080" }],
  ["single quotes too", "a: '${PORT}'", { a: "8080" }],
  ["a part of a scalar", "a: http://h:${PORT}/x", { a: "http://h:8080/x" }],
  ["several in one", "a: ${NAME}-${PORT}", { a: "a b-8080" }],
  ["in a flow map", "a: { port: ${PORT}, b: 1 }", { a: { port: 8080, b: 1 } }],
  ["in a flow list", "a: [${PORT}, '${NAME}']", { a: [8080, "a b"] }],
  ["in a literal block", "a: |\n  x ${PORT}\n  y\n", { a: "x 8080\ny\n" }],
  ["in a folded block", "a: >-\n  x ${PORT}\n  y\n", { a: "x 8080 y" }],
  ["in a key", "${NAME}: 1", { "a b": 1 }],
  ["the default of an unset one", "a: ${NONE:-7}", { a: 7 }],
  ["the default of an empty one", "a: ${EMPTY:-x}", { a: "x" }],
  ["an empty default", 'a: "${NONE:-}"', { a: "" }],
  ["a default with quotes, braces' friends and a comment sign", "a: ${NONE:-a: 'b' # [c}", { a: "a: 'b' # [c" }],
  ["an empty value is nothing", "a: ${EMPTY}", { a: null }],
  ["an escaped one is itself", "a: $${PORT}", { a: "${PORT}" }],
  ["an escaped opening alone", "a: 'cost: $${'", { a: "cost: ${" }],
  ["a dollar sign is a dollar sign", "a: $5 $HOME $", { a: "$5 $HOME $" }],
  ["a value is not looked at again", "a: ${NESTED}", { a: "${PORT}" }],
  ["a value with line breaks cannot add structure [C2]", "a: ${TRICK}\nb: 1", { a: ENV.TRICK, b: 1 }],
  ["nor one with a colon and a comment sign [C2]", "a: ${COLON}", { a: ENV.COLON }],
  ["nor one with quotes, in quotes [C2]", `a: "\${QUOTES}"`, { a: ENV.QUOTES }],
  ["what stands in a comment is not looked up", "a: 1 # ${NONE}\n# ${ALSO_NONE}\n", { a: 1 }],
  ["a byte order mark is no character [C1]", "\ufeffa: 1", { a: 1 }],
  ["line ends of another system", "a: ${PORT}\r\nb: 2\r\n", { a: 8080, b: 2 }],
  ["JSON is YAML", '{"a": {"b": [1, "${PORT}"]}}', { a: { b: [1, "8080"] } }],
  ["an anchor and its alias", "a: &x { b: 1 }\nc: *x", { a: { b: 1 }, c: { b: 1 } }],
];
for (const [name, text, value] of resolved) {
  test(`reads: ${name} [S2.1-2]`, () => {
    assert.deepEqual(readValue(text), value);
  });
}

test("names of an object's own methods are not variables", () => {
  assert.deepEqual(problemsOf("a: ${toString}"), [
    "f.yaml:1:4: a: environment variable not found: toString. Set it, or write ${toString:-default}",
  ]);
});

test("names of an object's own members are names [C6]", () => {
  assert.deepEqual(readValue("constructor: 1\ntoString: 2"), { constructor: 1, toString: 2 });
});

const MALFORMED = "malformed ${…}: use ${NAME} or ${NAME:-default}, and $${ for a literal ${";

const INDENTATION =
  "the indentation is wrong here or in the next line (the keys of one object begin in the same column), or a value with a colon needs quotes";
const STAR = 'a value that begins with * needs quotes, for example "*"';
const COLON = "a colon is missing after a key, or the indentation is wrong";

const refused: [name: string, text: string, lines: string[]][] = [
  [
    "unset variables, all at once and in place [C3]",
    "a: ${NONE}\nb:\n  - x: '${OTHER}'",
    [
      "f.yaml:1:4: a: environment variable not found: NONE. Set it, or write ${NONE:-default}",
      "f.yaml:3:8: b[0].x: environment variable not found: OTHER. Set it, or write ${OTHER:-default}",
    ],
  ],
  [
    "an open quote, with others before it",
    "a: \"x\"\nb: 'it''s'\nc: 1\nd: \"open\ne: 2\n",
    ["f.yaml:4:4: the quote that opens here is never closed"],
  ],
  ["a key between two columns", "- name: a\n    stdio: 1\n  x: 2", [`f.yaml:1:9: ${INDENTATION}`]],
  [
    "keys in different columns",
    "a:\n    b: 1\n   c: 2",
    [
      "f.yaml:3:1: the keys of one object must begin in the same column: align this line with the other keys, or indent it further to put it below the key before it",
    ],
  ],
  ["too many lines", "\n".repeat(200_001), ["f.yaml:1:1: the file has more than 200,000 lines"]],
  ["too many documents", "---\n".repeat(10_001), ["f.yaml:1:1: the file has more than 10,000 documents"]],
  ["a malformed placeholder [C3]", "a: ${1X}", [`f.yaml:1:4: a: ${MALFORMED}`]],
  ["an open placeholder [C3]", "a: '${PORT'", [`f.yaml:1:4: a: ${MALFORMED}`]],
  [
    "a key twice [C1]",
    "a: 1\nb: 2\na: 3",
    ["f.yaml:3:1: a: duplicate key in the same object: it is in line 1 already"],
  ],
  [
    "a key twice in a flow map",
    "x: { a: 1, a: 2 }",
    ["f.yaml:1:12: x.a: duplicate key in the same object: it is in line 1 already"],
  ],
  [
    "keys twice at several depths, in the order of the file",
    "a:\n  - { b: 1,\n      b: 2 }\na: 3",
    [
      "f.yaml:3:7: a[0].b: duplicate key in the same object: it is in line 2 already",
      "f.yaml:4:1: a: duplicate key in the same object: it is in line 1 already",
    ],
  ],
  [
    "the one name that an object cannot hold [C6]",
    "a: { __proto__: 1 }",
    ["f.yaml:1:6: a.__proto__: this name cannot be used"],
  ],
  ["a malformed placeholder that is a syntax error too", "a: { port: ${}, b: 1 }\nc: 2", [`f.yaml:1:12: ${MALFORMED}`]],
  [
    "broken syntax in a few lines, without its echo",
    "a: [1, 2\nb: 1\nc: 2\nd: 3",
    ['f.yaml:2:1: "[" is not closed before this line: add "]", or indent the line further'],
  ],
  [
    "a tag that nobody knows, which would make the value an empty one [C1]",
    "a: !x y",
    ["f.yaml:1:4: unknown tag: quote values that begin with !"],
  ],
  ["a line that is indented too far", "a:\n  b: 1\n   c: 2", [`f.yaml:2:6: ${INDENTATION}`]],
  ["a value with a colon", "a: b: c", [`f.yaml:1:4: ${INDENTATION}`]],
  ["a missing colon, without its echo", "mcp:\n  port 3000\n  targets: []", [`f.yaml:2:3: ${COLON}`]],
  ["a key without a colon before a list", "a:\n  b\n    - c: 1\n", [`f.yaml:2:3: ${COLON}`]],
  ["a tab as indentation [C1]", "a:\n\tb: 1", ["f.yaml:2:1: a tab is used for indentation: YAML needs spaces"]],
  ["brackets nested too deep", `a: ${"[".repeat(500)}`, ["f.yaml:1:1: nested deeper than 64 levels"]],
  ["more than 8 MiB", `a: ${"x".repeat(8 * 1024 * 1024)}`, ["f.yaml:1:1: the file is larger than 8 MiB"]],
  [
    "an alias inside of itself",
    "a: &x [*x]",
    ["f.yaml:1:1: the aliases cannot be expanded: an alias is inside its own anchor"],
  ],
  ["an alias of nothing, without repeating what may be a value", "a: *secret", [`f.yaml:1:4: ${STAR}`]],
  ["a star without quotes", "- name: *\n- hosts: [*.example.com]", [`f.yaml:1:9: ${STAR}`]],
  ["a pattern without quotes", "a: 1\nhosts: [*.example.com]", [`f.yaml:2:9: ${STAR}`]],
  [
    "an object that is not closed",
    "a: { b: 1\nc: 2",
    ['f.yaml:2:1: "{" is not closed before this line: add "}", or indent the line further'],
  ],
  ["a character that YAML reserves", "a: @b", ["f.yaml:1:4: a value that begins with this character needs quotes"]],
  [
    "characters that placeholders are marked with",
    "a: \ue000",
    ["f.yaml:1:1: the file contains private-use characters (U+E000 to U+E002)"],
  ],
];
for (const [name, text, lines] of refused) {
  test(`refuses ${name}`, () => {
    assert.deepEqual(problemsOf(text), lines);
  });
}

const quoting: [name: string, text: string][] = [
  ["after a broken line", "a: }\nkey: planted"],
  ["in a line that is indented too far", "a: 1\n b: planted"],
  ["as a value with a colon", "a: planted: b"],
  ["where a colon is missing", "key planted\nb: 1"],
  ["as a block's head", "key: |planted\n  x"],
  ["as a tag", "key: !planted"],
  ["as a second value", 'key: "x" planted'],
  ["as a collection's tag", "key: !planted [1]"],
  ["behind an anchor", "key: &planted &planted x"],
  ["in flow", "a: { key: 'x' planted }\nb: ]planted"],
];
for (const [name, text] of quoting) {
  test(`a value that stands ${name} is in no message [C5]`, () => {
    const lines = problemsOf(text);
    assert.ok(lines.length > 0);
    assert.doesNotMatch(lines.join("\n"), /planted/);
  });
}

const bombs: [name: string, text: string][] = [
  [
    "aliases of aliases",
    `a: &a [x,x,x,x,x,x,x,x,x]\n${[..."bcdefghij"].map((c, i) => `${c}: &${c} [${Array(9).fill(`*${"abcdefghij"[i]}`).join(",")}]`).join("\n")}`,
  ],
  ["a merge key with thousands of aliases", `a: &a {x: 1}\nb:\n  <<: [${Array(4000).fill("*a").join(",")}]\n`],
  ["indentation nested too deep", Array.from({ length: 2000 }, (_, i) => `${" ".repeat(i)}a:`).join("\n")],
  ["dashes nested too deep", "- ".repeat(100_000)],
];
for (const [name, text] of bombs) {
  test(`refuses ${name} in under a second [C1] [V23]`, () => {
    assertCpuBelow(1_000, () => assert.ok(problemsOf(text).length > 0));
  });
}

test("many keys and long lists are no bomb", () => {
  const keys = Array.from({ length: 5_000 }, (_, i) => `k${i}: 1`).join("\n");
  const text = `${keys}\nlist:\n${"- 1\n".repeat(5_000)}`;
  assertCpuBelow(2_000, () => assert.equal(Object.keys(readValue(text) as object).length, 5_001));
});

test("several documents keep their own places", () => {
  const parsed = finish(parseSource("f.yaml", "a: 1\n---\nkind: X\nb:\n  c: 2\n", {}));
  assert.deepEqual(
    parsed.documents.map(({ value }) => value),
    [{ a: 1 }, { kind: "X", b: { c: 2 } }],
  );
  assert.deepEqual(parsed.documents[1]?.position(["b", "c"]), { file: "f.yaml", line: 5, column: 6 });
  assert.deepEqual(parsed.documents[1]?.position(["b", "c"], "key"), { file: "f.yaml", line: 5, column: 3 });
  assert.deepEqual(
    parsed.documents[1]?.position(["b", "none"]),
    { file: "f.yaml", line: 5, column: 3 },
    "the nearest parent",
  );
});

test("a value that YAML takes for a part of the name is cut off in messages, a port is not", () => {
  assert.equal(pathText(["keys", 0, "key:0123456789"]), "keys[0].key:…");
  assert.equal(pathText(["key=0123456789", "x"]), "key=….x");
  assert.equal(pathText(["services", "shop:8080"]), "services.shop:8080");
});
