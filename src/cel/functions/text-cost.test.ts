/**
 * The cost limit holds for large texts outside of loops: each function that reads a whole text is charged before it does,
 * so an expression cannot repeat it at will.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { compileExpression } from "../expression.ts";
import { plainAttributes } from "../values/attribute-source.ts";
import { COST_EXCEEDED } from "./budget.ts";
import { signatures } from "./functions.ts";

const CHARS = 4 * 1024 * 1024;
const TEXTS: Readonly<Record<string, string>> = {
  letters: "A".repeat(CHARS),
  "wide letters": "Aé😀".repeat(CHARS / 4),
  digits: "1".repeat(CHARS),
  separators: ",".repeat(CHARS),
  spaces: " \n".repeat(CHARS / 2),
};

/** The variable `b` contains the text. */
const CHARGED: Readonly<Record<string, readonly string[]>> = {
  contains: ['b.contains("zz")'],
  indexOf: ['b.indexOf("zz")', 'b.indexOf("zz", 1)'],
  lastIndexOf: ['b.lastIndexOf("zz")', 'b.lastIndexOf("zz", 9)'],
  size: ["size(b)", "b.size()"],
  charAt: ["b.charAt(1)"],
  substring: ["b.substring(1)", "b.substring(1, 2)"],
  lowerAscii: ["b.lowerAscii()"],
  upperAscii: ["b.upperAscii()"],
  replace: ['b.replace("A", "bb")', 'b.replace("", "b")', 'b.replace(",", "", 4000000)', 'b.replace("A", "", -1)'],
  split: ['b.split("")', 'b.split(",")', 'b.split(",", 3)', "b.split(b.charAt(0))"],
  trim: ["b.trim()"],
  join: ["[b].join()", '[b, b].join("")'],
  format: ['"%s".format([b])'],
  "strings.quote": ["strings.quote(b)"],
  bytes: ["bytes(b)"],
  string: ["string(bytes(b))"],
  int: ["int(b)"],
  uint: ["uint(b)"],
  double: ["double(b)"],
  json: ["json(b)", "json(bytes(b))"],
  toJson: ["toJson(b)", 'toJson({"a": [b]})'],
  "base64.encode": ["base64.encode(b)"],
  base64Encode: ["base64Encode(b)"],
  "base64.decode": ["base64.decode(b)"],
  base64Decode: ["base64Decode(b)"],
  "sha256.encode": ["sha256.encode(b)"],
  "sha1.encode": ["sha1.encode(b)"],
  "md5.encode": ["md5.encode(b)"],
  "url.encode": ["url.encode(b)"],
  "url.decode": ["url.decode(b)"],
  "form.encode": ['form.encode({"a": b})', 'form.encode({b: "a"})'],
  unvalidatedJwtPayload: ["unvalidatedJwtPayload(b)"],
  cidr: ["cidr(b)"],
  ip: ["ip(b)"],
  containsIP: ['cidr("10.0.0.0/8").containsIP(b)'],
  containsCIDR: ['cidr("10.0.0.0/8").containsCIDR(b)'],
};

/** They look at a few characters, or at none. */
const CONSTANT: ReadonlySet<string> = new Set([
  ...["startsWith", "endsWith", "stripPrefix", "stripSuffix", "bool", "timestamp", "duration", "type", "dyn", "uuid"],
  ...["random", "isIP", "isCIDR", "has", "default", "coalesce", "min", "max", "family", "masked", "prefixLength"],
  ...["isUnspecified", "isLoopback", "isPrivate", "isLinkLocalUnicast", "isLinkLocalMulticast"],
  ...["all", "exists", "exists_one", "existsOne", "filter", "map"],
]);
const OTHER_ACCOUNT: ReadonlySet<string> = new Set(["matches", "regexReplace"]);

test("every function has a sample, or takes the same time for every text", () => {
  const missing = [...signatures.keys()].filter(
    (name) =>
      !(Object.hasOwn(CHARGED, name) || CONSTANT.has(name) || OTHER_ACCOUNT.has(name)) && !/^(?:get|math\.)/.test(name),
  );
  assert.deepEqual(missing, []);
});

const REPEATS = 10;
for (const [name, sources] of Object.entries(CHARGED))
  test(`${name} is charged before it reads 4 MiB, and ends the evaluation when it is repeated`, () => {
    for (const source of sources) {
      const call = `default(dyn(${source.replace(/\bb\b/g, "request.body")}), 1)`;
      const expression = compileExpression(`[${Array.from({ length: REPEATS }, () => call).join(", ")}].size()`);
      // The aim is 50 ms for each text. Without the limit it would be seconds.
      const evaluate = (): void => {
        for (const [shape, body] of Object.entries(TEXTS))
          assert.deepEqual(
            expression.evaluate(plainAttributes({ request: { body } })),
            { ok: false, error: COST_EXCEEDED },
            `${source} of ${shape}`,
          );
      };
      assertCpuBelow(1_500 * Object.keys(TEXTS).length, evaluate, source);
    }
  });

test("texts of a request head, constants, and short texts cost nothing", () => {
  const calls = Array.from({ length: 120 }, (_, i) => `request.path.lowerAscii().contains("${i}z")`);
  const expression = compileExpression(calls.join(" || "));
  const path = "/Aé".repeat(20_000);
  assert.deepEqual(expression.evaluate(plainAttributes({ request: { path } })), { ok: true, value: false });
});

test("letters are changed in ASCII only, in texts with and without other letters", () => {
  const value = (source: string, body: string): unknown => {
    const result = compileExpression(source).evaluate(plainAttributes({ request: { body } }));
    return result.ok ? result.value : result.error;
  };
  for (const [text, lower, upper] of [
    ["aZ@[`{", "az@[`{", "AZ@[`{"],
    ["ÀaZéÉß", "ÀazéÉß", "ÀAZéÉß"],
    ["😀İaZ\ud800", "😀İaz\ud800", "😀İAZ\ud800"],
    ["", "", ""],
  ] as const) {
    assert.equal(value("request.body.lowerAscii()", text), lower);
    assert.equal(value("request.body.upperAscii()", text), upper);
  }
  assert.equal(value("request.body.size()", "a😀\ud800\udbffb"), 5);
});
