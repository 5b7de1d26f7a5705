/**
 * Expressions: compiling throws an ExpressionError or nothing, evaluating throws nothing, both end soon, and arithmetic and
 * logic come out as a second evaluator has them, which works on the tree that the expression was written from.
 */
import { compileExpression, ExpressionError } from "../../../src/cel/expression.ts";
import { plainAttributes } from "../../../src/cel/values/attribute-source.ts";
import { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame, refusalOf } from "../target.ts";

/** Text, or a number from which an expression with a known value is made. */
type Input = { readonly source: string; readonly treeSeed: number; readonly attributes: string };

const MAX_CPU_MS = 2_000;
/** The tree and the explanation cost more than the expression itself: not with every case. */
const TREE_ONE_IN = 4;
const EXPLAINED_ONE_IN = 4;
const MAX_INT = 2n ** 63n - 1n;
const MIN_INT = -(2n ** 63n);

type Value = bigint | boolean;
/** Undefined stands for an error. */
type Known = { readonly text: string; readonly value: Value | undefined };

function inRange(value: bigint): bigint | undefined {
  return value > MAX_INT || value < MIN_INT ? undefined : value;
}

function int(random: Random, depth: number): Known {
  if (depth === 0 || random.oneIn(4)) {
    const value = BigInt(random.pick([0, 1, 2, 3, 7, 100, 4294967296])) * (random.oneIn(8) ? 2_000_000_000n : 1n);
    return { text: String(value), value };
  }
  if (random.oneIn(5)) {
    const condition = bool(random, depth - 1);
    const yes = int(random, depth - 1);
    const no = int(random, depth - 1);
    const chosen = condition.value === undefined ? undefined : condition.value ? yes.value : no.value;
    return { text: `(${condition.text} ? ${yes.text} : ${no.text})`, value: chosen };
  }
  const one = int(random, depth - 1);
  const other = int(random, depth - 1);
  const operator = random.pick(["+", "-", "*", "/", "%"]);
  const text = `(${one.text} ${operator} ${other.text})`;
  if (typeof one.value !== "bigint" || typeof other.value !== "bigint") return { text, value: undefined };
  if ((operator === "/" || operator === "%") && other.value === 0n) return { text, value: undefined };
  const results = {
    "+": () => (one.value as bigint) + (other.value as bigint),
    "-": () => (one.value as bigint) - (other.value as bigint),
    "*": () => (one.value as bigint) * (other.value as bigint),
    "/": () => (one.value as bigint) / (other.value as bigint),
    "%": () => (one.value as bigint) % (other.value as bigint),
  };
  return { text, value: inRange(results[operator as "+"]()) };
}

function bool(random: Random, depth: number): Known {
  if (depth === 0)
    return random.pick([
      { text: "true", value: true },
      { text: "false", value: false },
    ]);
  switch (random.int(4)) {
    case 0: {
      const inner = bool(random, depth - 1);
      return { text: `!${inner.text}`, value: inner.value === undefined ? undefined : !inner.value };
    }
    case 1: {
      const one = int(random, depth - 1);
      const other = int(random, depth - 1);
      const text = `(${one.text} < ${other.text})`;
      if (one.value === undefined || other.value === undefined) return { text, value: undefined };
      return { text, value: one.value < other.value };
    }
    default: {
      // An error on one side is covered where the other side decides (CEL, logical operators).
      const one = bool(random, depth - 1);
      const other = bool(random, depth - 1);
      const isAnd = random.oneIn(2);
      const decides = !isAnd;
      const text = `(${one.text} ${isAnd ? "&&" : "||"} ${other.text})`;
      if (one.value === decides || other.value === decides) return { text, value: decides };
      return { text, value: one.value === undefined || other.value === undefined ? undefined : !decides };
    }
  }
}

function checkKnown(seed: number): string {
  const random = new Random(Math.trunc(seed) >>> 0);
  const known = random.oneIn(2) ? int(random, 3) : bool(random, 3);
  const result = compileExpression(known.text).evaluate(plainAttributes({}));
  if (known.value === undefined) expect(!result.ok, `no error in ${known.text}`);
  else {
    expect(result.ok, `${known.text}: ${result.ok ? "" : result.error}`);
    expectSame(Number(result.value), Number(known.value), `the value of ${known.text}`);
  }
  return `known ${typeof known.value}`;
}

function expectQuick(source: string): void {
  const began = process.cpuUsage();
  refusalOf(() => void compileExpression(source).evaluate(plainAttributes({})), ExpressionError);
  const { user } = process.cpuUsage(began);
  expect(user < MAX_CPU_MS * 1000, `it took ${user / 1000} ms`);
}

const TOKENS = [
  "request", ".path", ".headers", '["x-a"]', "jwt", ".sub", ".aud", "mcp.tool.name", "llm.requestModel", "==", "!=", "<", "&&", "||", "!", "(", ")", "[", "]",
  "{", "}", ",", ":", "?", "1", "0", "-1", "1.5", '"a"', "'b'", 'r"\\d"', "b'x'", "true", "null", "in", "+", "-", "*", "/", "%", " ", "has(", "size(", ".startsWith(",
  ".matches(", '"^a+$"', '"(a*)*b"', ".contains(", ".exists(x, x == 1)", ".all(x, x > 0)", ".map(x, x)", ".filter(x, true)", "[1,2,3]", "{'a':1}", "string(", "int(",
  "timestamp(", "duration(", '"1s"', ".split(", "x", "default(", "9223372036854775807", "0x10", "1u", "//c", "\n", "\"\\u00e9\"", "request.headers",
]; // biome-ignore format: a table

export const cel = defineTarget<Input>({
  name: "cel",
  seeds: [
    'request.path.startsWith("/a") && jwt.sub == "x"', '[1,2,3].exists(x, x > 2)', 'request.headers["x-a"].matches("^a+$")', "has(jwt.sub) ? jwt.sub : 'none'", "jwt.list.map(x, x + 1).filter(x, x in [2, 3])",
  ].map((source, treeSeed) => ({ source, treeSeed, attributes: '{"sub":"x","list":[1,2,"a",null,{"b":1.5}]}' })), // biome-ignore format: a table
  smokeCases: 150,
  generate: (random) => ({
    source: random.text(TOKENS, 14),
    treeSeed: random.next(),
    attributes: random.pick([
      '{"sub":"x","list":[1,2,3]}',
      "{}",
      '{"sub":null}',
      '{"list":[[[1]],{}]}',
      `{"sub":"${"a".repeat(200)}"}`,
    ]),
  }),
  run({ source, treeSeed, attributes }) {
    const known = treeSeed % TREE_ONE_IN === 0 ? checkKnown(treeSeed / TREE_ONE_IN) : "";
    let claims: unknown = {};
    try {
      claims = JSON.parse(attributes) as unknown;
    } catch {
      // A mutated text: no claims then.
    }
    const began = performance.now();
    let outcome = "";
    const refusal = refusalOf(() => {
      const expression = compileExpression(source);
      const values = {
        jwt: claims,
        request: { path: "/aaaaaaaaaaaaaaaaaaaaaaaa", headers: { "x-a": "aaaa" }, method: "GET" },
      };
      const result = expression.evaluate(plainAttributes(values));
      expectSame(expression.evaluate(plainAttributes(values)), result, "the second time");
      if (treeSeed % EXPLAINED_ONE_IN === 1)
        for (const clause of expression.explain(plainAttributes(values)))
          expect(typeof clause === "object", "an explanation");
      outcome = result.ok
        ? `value ${Array.isArray(result.value) ? "list" : typeof result.value}`
        : `error ${result.error.slice(0, 24)}`;
      if (result.ok) JSON.stringify(result.value);
    }, ExpressionError);
    // By the clock, which is cheap to read; a machine that stood still is told apart by a second try in CPU time.
    if (performance.now() - began > MAX_CPU_MS) expectQuick(source);
    if (refusal !== undefined)
      outcome = `refused: ${refusal.message
        .split("\n")[0]
        ?.replace(/`.*`|".*"|\d+/g, "…")
        .slice(0, 40)}`;
    return `${outcome} ${known}`;
  },
});
