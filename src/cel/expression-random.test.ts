/**
 * Random sources and values: compiling, evaluating and explaining never throw.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compileExpression, ExpressionError } from "./expression.ts";
import { plainAttributes } from "./values/attribute-source.ts";

/** Random sources of the language itself: most compile, and many fail only when they are evaluated. */
const randomSource = fc.letrec<{ any: string }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.constantFrom(
      "jwt",
      "jwt.sub",
      "request.body",
      "jwt.a.b",
      'jwt["__proto__"]',
      "llm",
      "1",
      "2.5",
      '"x"',
      "null",
      "[]",
      "{}",
      "-1",
      "b'a'",
    ),
    fc
      .tuple(tie("any"), fc.constantFrom("+", "-", "*", "/", "%", "==", "<", "in", "&&", "||"), tie("any"))
      .map(([a, op, b]) => `(${a} ${op} ${b})`),
    fc
      .tuple(
        fc.constantFrom(
          "size",
          "json",
          "toJson",
          "string",
          "int",
          "double",
          "timestamp",
          "duration",
          "ip",
          "type",
          "sha256.encode",
        ),
        tie("any"),
      )
      .map(([name, a]) => `${name}(${a})`),
    fc
      .tuple(tie("any"), fc.constantFrom("contains", "matches", "split", "containsIP", "stripPrefix"), tie("any"))
      .map(([a, name, b]) => `${a}.${name}(${b})`),
    fc
      .tuple(tie("any"), fc.constantFrom("all", "exists", "map", "filter"), tie("any"))
      .map(([a, name, b]) => `${a}.${name}(jwt, ${b})`),
    fc
      .tuple(fc.constantFrom("default", "coalesce"), tie("any"), tie("any"))
      .map(([name, a, b]) => `${name}(${a}, ${b})`),
    fc.tuple(tie("any"), tie("any"), tie("any")).map(([a, b, c]) => `(${a} ? ${b} : ${c})`),
    fc.tuple(tie("any"), tie("any")).map(([a, b]) => `[${a}, ${b}][0]`),
    tie("any").map((a) => `${a}.field`),
  ),
})).any;

const hostileValues = fc.oneof(
  fc.anything({
    withBigInt: true,
    withDate: true,
    withMap: true,
    withSet: true,
    withNullPrototype: true,
    withTypedArray: true,
  }),
  fc.constant(
    new Proxy(
      {},
      {
        ownKeys: () => {
          throw new Error("trap");
        },
      },
    ),
  ),
  fc.constant(Symbol("s")),
  fc.constant(selfContaining()),
);

function selfContaining(): object {
  const value: Record<string, unknown> = {};
  value.a = [value, value];
  return value;
}

test("evaluation and explanation never throw, whatever the source and the attributes are", () => {
  fc.assert(
    fc.property(randomSource, hostileValues, hostileValues, (source, jwt, request) => {
      let expression: ReturnType<typeof compileExpression>;
      try {
        expression = compileExpression(source);
      } catch (error) {
        assert.ok(error instanceof ExpressionError, String(error));
        return;
      }
      const result = expression.evaluate(plainAttributes({ jwt, request }));
      assert.ok(result.ok ? JSON.stringify(result.value) !== undefined : typeof result.error === "string");
      assert.ok(Array.isArray(expression.explain(plainAttributes({ jwt, request }))));
    }),
    { numRuns: 300 },
  );
});

test("any text either compiles or is refused with a position inside it", () => {
  const pieces = fc.constantFrom(
    "jwt",
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    "\\",
    "&&",
    "!",
    "-",
    "?",
    ":",
    "1",
    " ",
    "\n",
    "//",
    "r",
    "é😀",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(pieces, { maxLength: 30 }).map((parts) => parts.join("")),
      ),
      (source) => {
        try {
          compileExpression(source);
        } catch (error) {
          assert.ok(error instanceof ExpressionError, String(error));
          assert.match(error.message, /^cel: /);
          assert.ok(error.line >= 1 && error.line <= source.split("\n").length && error.column >= 1);
        }
      },
    ),
    { numRuns: 300 },
  );
});
