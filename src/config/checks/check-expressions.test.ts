import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { policies } from "../../policies/index.ts";
import { unwrap } from "../schema/schema-walk.ts";
import { EXPRESSION_PLACES, expressionsOf } from "./check-expressions.ts";

/** A field that takes expressions and nothing else. */
function isExpression(schema: z.ZodType): boolean {
  const refused = schema.safeParse("request.nope(");
  return schema.safeParse("true && 1 == 1").success && schema.safeParse("9").success && !refused.success;
}

function expressionPlaces(schema: z.ZodType, path: readonly string[] = []): string[] {
  return unwrap(schema).flatMap((one) => {
    if (one instanceof z.ZodObject)
      return Object.entries(one.shape).flatMap(([key, inner]) => expressionPlaces(inner as z.ZodType, [...path, key]));
    if (one instanceof z.ZodArray) return expressionPlaces(one.element as z.ZodType, [...path, "*"]);
    if (one instanceof z.ZodRecord) return expressionPlaces(one.valueType as z.ZodType, [...path, "*"]);
    return one instanceof z.ZodString && isExpression(one) ? [path.join(".")] : [];
  });
}

test("every field of a policy that takes an expression is listed with its moment", () => {
  const listed = (kind: string): RegExp[] =>
    EXPRESSION_PLACES.filter(({ policy }) => policy === kind).map(
      ({ at }) => new RegExp(`^${at.map((step) => (step === "*" ? "[^.]+" : step)).join("\\.")}$`),
    );
  const found = policies.flatMap(({ kind, schema }) => expressionPlaces(schema).map((path) => ({ kind, path })));
  assert.ok(found.length >= 12, "there are some");
  const missing = found.filter(({ kind, path }) => !listed(kind).some((pattern) => pattern.test(path)));
  assert.deepEqual(missing, []);
});

test("the moment of a limit depends on what it counts", () => {
  const config = {
    local: [
      { requests: 1, key: "a" },
      { tokens: 1, key: "b" },
    ],
    global: { descriptors: [{ type: "tokens", entries: [{ key: "k", value: "c" }] }] },
  };
  assert.deepEqual(
    expressionsOf("rateLimit", config).map(({ source, path, moment }) => `${source} ${path.join(".")} ${moment}`),
    ["a local.0.key requestLimit", "b local.1.key tokenLimit", "c global.descriptors.0.entries.0.value tokenLimit"],
  );
});
