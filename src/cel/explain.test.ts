import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression } from "./expression.ts";
import { plainAttributes } from "./values/attribute-source.ts";

const attributes = {
  jwt: { sub: "alice", roles: ["user"] },
  request: { method: "POST", body: '{"id":5}' },
};

test("shows every part with its value, outermost first", () => {
  const rule = compileExpression('"admin" in jwt.roles && request.method == "POST"');
  assert.deepEqual(rule.explain(plainAttributes(attributes)), [
    { source: '"admin" in jwt.roles && request.method == "POST"', depth: 0, value: false },
    { source: '"admin" in jwt.roles', depth: 1, value: false },
    { source: 'request.method == "POST"', depth: 1, value: true },
    { source: "jwt.roles", depth: 2, value: ["user"] },
    { source: "request.method", depth: 2, value: "POST" },
  ]);
});

test("shows errors at the part that has them, and all operands of a chain on one level", () => {
  const rule = compileExpression(
    "has(jwt.sub) && jwt.nope == 1 && json(request.body).id > 3 && jwt.roles.exists(r, r == 'x')",
  );
  assert.deepEqual(rule.explain(plainAttributes(attributes)).slice(1), [
    { source: "has(jwt.sub)", depth: 1, value: true },
    { source: "jwt.nope == 1", depth: 1, error: "field not found: nope" },
    { source: "json(request.body).id > 3", depth: 1, value: true },
    { source: 'jwt.roles.exists(r, r == "x")', depth: 1, value: false },
    { source: "jwt.nope", depth: 2, error: "field not found: nope" },
    { source: "json(request.body).id", depth: 2, value: 5 },
    { source: "jwt.roles", depth: 2, value: ["user"] },
    { source: "json(request.body)", depth: 3, value: { id: 5 } },
    { source: "request.body", depth: 4, value: '{"id":5}' },
  ]);
});

test("names of functions are no parts of their own", () => {
  const parts = compileExpression('default(base64.encode(jwt.nope), "none")').explain(plainAttributes(attributes));
  assert.deepEqual(
    parts.map(({ source }) => source),
    ['default(base64.encode(jwt.nope), "none")', "base64.encode(jwt.nope)", "jwt.nope"],
  );
});

test("the parts are bounded in number, and each appears once", () => {
  const source = Array.from({ length: 200 }, (_, index) => `jwt.sub == "${index}"`).join(" || ");
  const parts = compileExpression(source).explain(plainAttributes(attributes));
  assert.equal(parts.length, 64);
  const repeated = compileExpression("jwt.sub == 'a' || jwt.sub == 'a'").explain(plainAttributes(attributes));
  assert.equal(repeated.length, 3);
});

test("large values are not copied into an explanation", () => {
  const body = "x".repeat(2_000_000);
  const parts = compileExpression("request.body.contains('a') && request.body == 'b'").explain(
    plainAttributes({ request: { body } }),
  );
  assert.ok(JSON.stringify(parts).length < 100_000);
  assert.deepEqual(parts.at(-1), { source: "request.body", depth: 2, error: "the value is too large" });
});

test("an explanation shares one budget, so that it costs no more than an evaluation may", () => {
  const list = Array.from({ length: 5_000 }, (_, index) => index);
  const heavy = (name: string) => `request.list.all(${name}, ${name} >= 0 && ${name} + 1 > 0)`;
  const source = Array.from({ length: 40 }, (_, index) => heavy(`x${index}`)).join(" && ");
  const parts = compileExpression(source).explain(plainAttributes({ request: { list } }));
  assert.equal(
    parts.some((part) => "error" in part),
    true,
  );
});

test("leaves the next evaluation its whole budget", () => {
  const rule = compileExpression("request.list.all(x, x >= 0)");
  rule.explain(plainAttributes({ request: { list: Array.from({ length: 200_000 }, () => 1) } }));
  assert.deepEqual(rule.evaluate(plainAttributes({ request: { list: [1] } })), { ok: true, value: true });
});
