import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression } from "../expression.ts";
import { plainAttributes } from "./attribute-source.ts";
import { celHeaders, type HeaderSource } from "./headers.ts";

const headers = celHeaders([
  ["X-Id", "42"],
  ["accept", "text/html"],
  ["Accept", "text/plain"],
  ["constructor", "own"],
]);

const cases = [
  { source: 'request.headers["x-id"]', value: "42" },
  { source: 'request.headers["X-ID"]', value: "42" },
  { source: "request.headers.accept", value: "text/html, text/plain" },
  { source: 'has(request.headers.accept) && "X-Id" in request.headers', value: true },
  { source: "has(request.headers.cookie)", value: false },
  { source: "has(request.headers.tostring)", value: false },
  { source: 'request.headers["__proto__"] == "x" || true', value: true },
  { source: "request.headers.constructor", value: "own" },
  { source: "size(request.headers)", value: 3 },
  { source: 'request.headers.exists(name, name.startsWith("x-") && request.headers[name] == "42")', value: true },
  { source: "request.headers", value: { "x-id": "42", accept: "text/html, text/plain", constructor: "own" } },
];
for (const { source, value } of cases) {
  test(`headers: ${source} [V14]`, () => {
    assert.deepEqual(compileExpression(source).evaluate(plainAttributes({ request: { headers } })), {
      ok: true,
      value,
    });
  });
}

test("a header that is not there is an error", () => {
  const result = compileExpression('request.headers["x-none"]').evaluate(plainAttributes({ request: { headers } }));
  assert.deepEqual(result, { ok: false, error: "field not found: x-none" });
});

test("a source of headers is asked for one name at a time, in lower case", () => {
  const asked: string[] = [];
  const source: HeaderSource = {
    get: (name) => {
      asked.push(name);
      return "v";
    },
    names: () => assert.fail("nobody asked for all names"),
  };
  compileExpression('request.headers["X-A"] == "v"').evaluate(
    plainAttributes({ request: { headers: celHeaders(source) } }),
  );
  assert.deepEqual(asked, ["x-a"]);
});
