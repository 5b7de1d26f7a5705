import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { checkDeclaredTypes } from "./declared-types.ts";
import { ArgumentProblem } from "./value-shape.ts";

function check(schema: unknown, body: unknown, definitions: object = {}): void {
  checkDeclaredTypes({ properties: { body: schema }, $defs: definitions }, { body });
}

const VALUES: Readonly<Record<string, unknown>> = {
  string: "5",
  integer: 5,
  number: 5.5,
  boolean: true,
  null: null,
  array: [],
  object: {},
};
const TYPES = Object.keys(VALUES);

interface Sample {
  readonly schema: object;
  readonly value: unknown;
  /** The same value with one part of another type than declared. */
  readonly wrong: unknown;
}

const leaf: fc.Arbitrary<Sample> = fc
  .record({ type: fc.constantFrom(...TYPES), other: fc.constantFrom(...TYPES) })
  .filter(({ type, other }) => type !== other && !(type === "number" && other === "integer"))
  .map(({ type, other }) => ({ schema: { type }, value: VALUES[type], wrong: VALUES[other] }));

const around: readonly ((inner: Sample) => Sample)[] = [
  ({ schema, value, wrong }) => ({
    schema: { type: "object", properties: { a: schema } },
    value: { a: value, b: 1 },
    wrong: { a: wrong },
  }),
  ({ schema, value, wrong }) => ({
    schema: { type: "object", additionalProperties: schema },
    value: { a: value },
    wrong: { a: value, ["__proto__"]: wrong, c: wrong },
  }),
  ({ schema, value, wrong }) => ({
    schema: { type: "array", items: schema },
    value: [value, value],
    wrong: [value, wrong],
  }),
  ({ schema, value, wrong }) => ({
    schema: { prefixItems: [{ type: "string" }], items: schema },
    value: ["a", value],
    wrong: ["a", wrong],
  }),
  ({ schema, value, wrong }) => ({ schema: { allOf: [{}, schema] }, value, wrong }),
  ({ schema, value, wrong }) => ({ schema: { anyOf: [schema, { type: "array" }] }, value, wrong }),
];

const samples = fc
  .tuple(leaf, fc.array(fc.constantFrom(...around), { maxLength: 5 }))
  .map(([inner, layers]) => layers.reduce((sample, layer) => layer(sample), inner));

test("JSON with the declared types is accepted, and one other type anywhere is rejected", () => {
  let rejected = 0;
  fc.assert(
    fc.property(samples, ({ schema, value, wrong }) => {
      check(schema, value);
      check({ $ref: "#/$defs/A" }, value, { A: schema });
      // The alternative accepts lists.
      if (JSON.stringify(schema).includes("anyOf") && JSON.stringify(wrong).includes("[")) return;
      assert.throws(() => check(schema, wrong), ArgumentProblem);
      assert.throws(() => check({ $ref: "#/$defs/A" }, wrong, { A: schema }), ArgumentProblem);
      rejected += 1;
    }),
    { numRuns: 3_000, seed: 1 },
  );
  assert.ok(rejected > 1_000, `only ${rejected} values were rejected`);
});

for (const [schema, accepted, refused] of [
  [{ type: ["string", "null"] }, ["a", null], [5, ["a"]]],
  [{ oneOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] }, ["a", ["a"]], [5, [5]]],
  [{ anyOf: [{ type: "object", properties: { a: { type: "string" } } }, { type: "null" }] }, [null, { a: "b" }], [{ a: 5 }]], // biome-ignore format: a table
  [{ type: "integer" }, [5, 2 ** 60], [5.5, "5", Number.POSITIVE_INFINITY]],
  [{ type: "object", properties: { toString: { type: "string" } } }, [{}, { toString: "a" }], [{ toString: 1 }]],
  [{ patternProperties: { "^x": {} }, additionalProperties: { type: "string" } }, [{ x: 1 }], []],
  [{ type: "file" }, ["a", 1], []],
  [true, ["a"], []],
] as const)
  test(`the types of ${JSON.stringify(schema)} are checked`, () => {
    for (const value of accepted) check(schema, value);
    for (const value of refused) assert.throws(() => check(schema, value), ArgumentProblem, JSON.stringify(value));
  });

test("the error names the place", () => {
  const schema = { type: "array", items: { type: "object", properties: { id: { type: ["string", "null"] } } } };
  assert.throws(
    () => check(schema, [{ id: "a" }, { id: ["secret"] }]),
    /the argument "body" at "1\/id" has another type than string or null$/,
  );
});

test("schemas that reference themselves or nest alternatives take bounded time", () => {
  const A = { anyOf: [{ type: "object", properties: { a: { $ref: "#/$defs/A" } } }, { type: "object", additionalProperties: { $ref: "#/$defs/A" } }, { allOf: [{ $ref: "#/$defs/A" }] }] }; // biome-ignore format: a table
  let value: unknown = 5;
  for (let i = 0; i < 60; i++) value = { a: value };
  assertCpuBelow(1_000, () => {
    for (const schema of [{ $ref: "#/$defs/A" }, { $ref: "#/$defs/B" }])
      assert.throws(() => check(schema, value, { A, B: { allOf: [{ $ref: "#/$defs/B" }] } }), /too large or too deep/);
    check({ $ref: "#/$defs/missing" }, value);
  });
});
