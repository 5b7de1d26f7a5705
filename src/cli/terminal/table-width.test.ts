import assert from "node:assert/strict";
import { test } from "node:test";
import { breakLines, MESSAGE_CHARS, SUMMARY_CHARS, table, textWidth, wrapWords } from "./table.ts";

for (const [text, width] of [
  ["", 0],
  ["plain", 5],
  ["größe", 5],
  ["e\u0301", 1],
  ["工具", 4],
  ["a工b", 4],
  ["🔧", 2],
  ["µs → ✗", 6],
  ["👩\u200d👩\u200d👧", 2],
  ["🇩🇪", 2],
  ["ｶﾞ", 2],
] as const)
  test(`${JSON.stringify(text)} takes ${width} columns`, () => {
    assert.equal(textWidth(text), width);
  });

test("text is wrapped at every width, also below one column", () => {
  for (const width of [-6, 0, 1, 2])
    assert.equal(wrapWords("a-b 工具 c", width).join("").replaceAll(" ", ""), "a-b工具c");
});

test("lines break where the next character would not fit, never inside of one", () => {
  assert.deepEqual(breakLines("", 4), [""]);
  assert.deepEqual(breakLines("abcdef", 4), ["abcd", "ef"]);
  assert.deepEqual(breakLines("abcd", 4), ["abcd"]);
  assert.deepEqual(breakLines("a工具b", 4), ["a工", "具b"]);
  assert.deepEqual(breakLines("🔧🔧🔧", 5), ["🔧🔧", "🔧"]);
  assert.deepEqual(breakLines("工具", 1), ["工", "具"]);
  assert.deepEqual(breakLines("a👩\u200d👩\u200d👧b", 3), ["a👩\u200d👩\u200d👧", "b"]);
  assert.deepEqual(breakLines("ae\u0301b", 2), ["ae\u0301", "b"]);
});

test("columns of a table line up with wide characters in them", () => {
  assert.equal(
    table([
      ["NAME", "ROUTE"],
      ["工具", "a"],
      ["b", "c"],
    ]),
    "NAME  ROUTE\n工具  a\nb     c\n",
  );
});

test("names and messages are complete, summaries and very long cells are truncated", () => {
  const [name, message] = ["x".repeat(100), "y".repeat(300)];
  assert.equal(table([[name, name]]), `${name}  ${name}\n`);
  assert.equal(table([[name, message]], { maxLastChars: MESSAGE_CHARS }), `${name}  ${message}\n`);
  assert.equal(table([[name, message]], { maxLastChars: SUMMARY_CHARS }), `${name}  ${"y".repeat(59)}…\n`);
  assert.equal(table([[message, "z"]]), `${"y".repeat(199)}…  z\n`);
});

test("a table on a narrow terminal wraps at words, and nothing is lost", () => {
  const rows = [
    ["ID", "REQUEST", "USER", "REASON"],
    ["1", "POST /v1/chat/completions", "-", "rate_limited: the limit of 5 requests per minute is used up"],
    ["2", "GET /", "-", ""],
  ];
  const paint = Object.assign((text: string) => text, { columns: 28 });
  assert.equal(
    table(rows, { paint }),
    `ID  REQUEST
1   POST
    /v1/chat/completions
    rate_limited: the limit
    of 5 requests per minute
    is used up
2   GET /
`,
  );
  assert.deepEqual(wrapWords("one two  three", 8), ["one two", "three"]);
  assert.deepEqual(wrapWords("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
  assert.deepEqual(wrapWords("`abcd` is", 6), ["`abcd`", "is"]);
  assert.deepEqual(wrapWords("reports-of-the-finance-department", 14), ["reports-of-", "the-finance-", "department"]);
  assert.deepEqual(wrapWords("a-bcdefghijklm", 8), ["a-bcdefg", "hijklm"]);
  assert.deepEqual(wrapWords("GET /a/long/way/home", 10), ["GET /a/", "long/way/", "home"]);
  assert.deepEqual(wrapWords("route reports-of-the", 12), ["route", "reports-of-", "the"]);
  assert.deepEqual(wrapWords("per minute by source.address", 13), ["per minute by", "source.", "address"]);
  assert.deepEqual(wrapWords("", 10), [""]);
  const wide = Object.assign((text: string) => text, { columns: 120 });
  assert.equal(table(rows, { paint: wide }), table(rows));
});
