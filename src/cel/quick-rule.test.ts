/**
 * Rules that are evaluated without the library must say what the library says; explaining a rule asks the library.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "@bufbuild/cel";
import fc from "fast-check";
import { compileExpression } from "./expression.ts";
import { quickRule } from "./quick-rule.ts";
import { plainAttributes } from "./values/attribute-source.ts";
import { celHeaders } from "./values/headers.ts";
import { celFields } from "./values/values.ts";

const constant = fc
  .constantFrom("", "a", "ab", "b", "/v1", "é", "admin", "toString")
  .map((text) => JSON.stringify(text));
const place = fc.constantFrom(
  ...["jwt.sub", "jwt.roles", "jwt.a.b", 'jwt["sub"]', "jwt.toString", "jwt", "apiKey.name", "llm.requestModel"],
  ...["request.path", "request.method", 'request.headers["X-A"]', 'request.headers["nope"]', "request.nope", "request"],
);
const text = fc.oneof(place, constant);
const group = fc.oneof(
  place,
  constant,
  fc.array(constant, { maxLength: 3 }).map((all) => `[${all.join(", ")}]`),
);
const clause = fc.oneof(
  fc.tuple(text, fc.constantFrom("==", "!="), text).map(([a, op, b]) => `${a} ${op} ${b}`),
  fc
    .tuple(text, fc.constantFrom("startsWith", "endsWith", "contains"), text)
    .map(([a, name, b]) => `${a}.${name}(${b})`),
  fc.tuple(text, group).map(([a, b]) => `${a} in ${b}`),
  fc
    .tuple(
      text,
      fc.constantFrom("<", "<=", ">", ">="),
      fc.constantFrom("0", "1", "-2", "9007199254740993", "1.5", '"a"'),
    )
    .map(([a, op, b]) => `${a} ${op} ${b}`),
  fc.constantFrom("has(jwt.sub)", "true", "jwt.sub.size() > 1", "1 == 1"),
);
const rule = fc.letrec<{ any: string }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    clause,
    fc.tuple(tie("any"), fc.constantFrom("&&", "||"), tie("any")).map(([a, op, b]) => `(${a}) ${op} (${b})`),
    tie("any").map((a) => `!(${a})`),
  ),
})).any;

const value = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom("", "a", "ab", "/v1/x", "admin", "é") },
  fc.constantFrom<unknown>(
    null,
    1,
    0,
    -0,
    -2,
    2 ** 60,
    2.5,
    true,
    ["a", "admin"],
    ["a", 1],
    [],
    { a: "b" },
    new Date(0),
    "x".repeat(5000),
  ),
  fc.constant(Array.from({ length: 200 }, () => "a")),
);
const claims = fc.record({ sub: value, roles: value, a: fc.record({ b: value }), extra: value }, { requiredKeys: [] });
const attributes = fc
  .record(
    {
      jwt: claims,
      apiKey: fc.record({ name: value }, { requiredKeys: [] }),
      llm: fc.record({ requestModel: value }, { requiredKeys: [] }),
    },
    { requiredKeys: [] },
  )
  .chain((some) =>
    fc
      .record({ path: fc.constantFrom("/v1", "/", "ab"), header: fc.constantFrom(undefined, "a", "admin") })
      .map(({ path, header }) => ({
        ...some,
        request: celFields(
          { path },
          new Map<string, (subject: { path: string }) => unknown>([
            ["path", (subject) => subject.path],
            ["headers", () => celHeaders(header === undefined ? [] : [["x-a", header]])],
            [
              "method",
              () => {
                throw new Error("cannot be read");
              },
            ],
          ]),
        ),
      })),
  );

const CASES = Number(process.env.QUICK_RULE_CASES ?? 5_000);

test("a rule says what the library says", () => {
  let quick = 0;
  fc.assert(
    fc.property(rule, attributes, (source, some) => {
      const expression = compileExpression(source);
      const [whole] = expression.explain(plainAttributes(some));
      const said = expression.evaluate(plainAttributes(some));
      // What is a constant has no explanation.
      if (whole === undefined) return;
      assert.deepEqual("error" in whole ? { ok: false, error: whole.error } : { ok: true, value: whole.value }, said);
      if (answerOf(source, some) !== undefined) quick += 1;
    }),
    { numRuns: CASES },
  );
  assert.ok(quick > CASES / 10, `${quick} were quick`);
});

function answerOf(source: string, some: Readonly<Record<string, unknown>>): boolean | undefined {
  try {
    return quickRule(parse(`${source}\n`).expr)?.(plainAttributes(some));
  } catch {
    return undefined;
  }
}

const usual: [source: string, answer: boolean][] = [
  ['jwt.sub == "alice"', true],
  ['jwt.sub != "alice"', false],
  ['"admin" in jwt.realm_access.roles', true],
  ['"owner" in jwt.realm_access.roles', false],
  ['jwt.sub in ["bob", "alice"]', true],
  ['"sub" in jwt', true],
  ['jwt["sub"].startsWith("al") && !jwt.sub.endsWith("x")', true],
  ['jwt.sub == "bob" || jwt.sub.contains("lic")', true],
  ["jwt.level > 3", false],
  ["jwt.level >= 3 && jwt.level <= 3", true],
];
for (const [source, answer] of usual) {
  test(`answered without the library: ${source}`, () => {
    assert.equal(
      answerOf(source, { jwt: { sub: "alice", level: 3, realm_access: { roles: ["user", "admin"] } } }),
      answer,
    );
  });
}

const left = [
  "jwt.sub > 1",
  "1 < jwt.sub",
  'jwt.none == "a"',
  "jwt.sub == 1",
  'jwt.sub.matches("a")',
  "has(jwt.sub)",
  "1 in [1]",
  "jwt.sub",
];
for (const source of left) {
  test(`left to the library: ${source}`, () => {
    assert.equal(answerOf(source, { jwt: { sub: "alice" } }), undefined);
  });
}
