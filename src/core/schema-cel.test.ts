import assert from "node:assert/strict";
import { test } from "node:test";
import { celSource } from "./schema.ts";

for (const [source, message] of [
  ['request.path == "/" && user == "a"', /^cel: unknown attribute "user".* \(column 24 of the expression\)$/],
  ['true &&\n  user == "a"', / \(line 2, column 3 of the expression\)$/],
  ["user", /^cel: unknown attribute "user", did you mean [^(]*$/],
  ['request.header["x"] == "a"', /^cel: request has no field "header", did you mean "headers"\?$/],
] as const)
  test(`${JSON.stringify(source)} is rejected with the place in the expression`, () => {
    const [issue] = celSource().safeParse(source).error?.issues ?? [];
    assert.match(issue?.message ?? "", message);
  });

test("a field of another version can be tested with has()", () => {
  assert.ok(celSource().safeParse("has(request.future) && request.future == 1").success);
  assert.ok(celSource().safeParse("jwt.anything == 1 && request.headers.any == 'a'").success);
});
