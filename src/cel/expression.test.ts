import assert from "node:assert/strict";
import { test } from "node:test";
import { type CelOutput, compileExpression } from "./expression.ts";
import { AttributeSource, plainAttributes } from "./values/attribute-source.ts";

const claims = {
  sub: "alice",
  exp: 1_700_000_000,
  ratio: 1.5,
  big: 2 ** 60,
  none: null,
  roles: ["user", "admin"],
  realm_access: { roles: ["dev"] },
  "https://example.com/team": "blue",
};
const attributes = {
  jwt: claims,
  request: { method: "POST", path: "/api/v1", body: '{"id": 5}' },
};

const values: { source: string; value: CelOutput }[] = [
  { source: '"admin" in jwt.roles', value: true },
  { source: '"root" in jwt.roles', value: false },
  { source: '"dev" in jwt.realm_access.roles && jwt.sub == "alice"', value: true },
  { source: 'jwt["https://example.com/team"]', value: "blue" },
  { source: 'request.path.startsWith("/api") ? "api" : "other"', value: "api" },
  { source: "jwt.roles", value: ["user", "admin"] },
  { source: "jwt.realm_access", value: { roles: ["dev"] } },
  { source: "json(request.body).id + 1", value: 6 },
  { source: "size(jwt.roles) == 2", value: true },
  { source: "jwt.none == null", value: true },
  // Whole numbers are ints, all others doubles.
  { source: "jwt.exp + 1", value: 1_700_000_001 },
  { source: "jwt.exp % 2", value: 0 },
  { source: "type(jwt.exp) == int", value: true },
  { source: "type(jwt.ratio) == double", value: true },
  { source: "type(jwt.big) == double", value: true },
  { source: "jwt.ratio * 2.0", value: 3 },
  { source: "jwt.exp == 1700000000.0", value: true },
  { source: "jwt.ratio > 1", value: true },
  // Absent: `has` is false on the last step, and a claim that is null is there.
  { source: "has(jwt.sub)", value: true },
  { source: "has(jwt.nope)", value: false },
  { source: "has(jwt.none)", value: true },
  { source: '"none" in jwt', value: true },
  { source: "has(llm.requestModel)", value: false },
  { source: "has(jwt.nope) && jwt.nope.deeper == 1", value: false },
  { source: "jwt.nope == 1 || true", value: true },
  // Only own properties exist.
  { source: "has(jwt.constructor)", value: false },
  { source: "has(jwt.__proto__)", value: false },
  { source: "has(jwt.toString)", value: false },
  { source: '"hasOwnProperty" in jwt', value: false },
  { source: "jwt.roles.map(role, role + '!')", value: ["user!", "admin!"] },
  { source: "jwt.roles.filter(role, role.startsWith('a'))", value: ["admin"] },
  { source: "[3, 1, 2].filter(x, x > 1).map(x, x * 2)", value: [6, 4] },
  { source: "[[1, 2], [3]].map(list, list.map(x, x + 1))", value: [[2, 3], [4]] },
  { source: "{'a': 1, 'b': 2}.exists(key, key == 'b')", value: true },
];
for (const { source, value } of values) {
  test(`evaluates ${source}`, () => {
    assert.deepEqual(compileExpression(source).evaluate(plainAttributes(attributes)), { ok: true, value });
  });
}

const errors = [
  { source: "jwt.nope", error: /not found: nope/ },
  { source: "jwt.nope.deeper", error: /not found: nope/ },
  { source: "has(jwt.nope.deeper)", error: /not found: nope/ },
  { source: "llm.requestModel", error: /not found: requestModel/ },
  { source: "jwt.constructor", error: /not found: constructor/ },
  { source: "jwt.__proto__.x", error: /not found: __proto__/ },
  { source: "jwt.roles.length", error: /not found: length/ },
  { source: "jwt.sub.length", error: /not found: length/ },
  { source: "jwt.roles[7]", error: /out of bounds/ },
  { source: "jwt.sub + 1", error: /no matching overload/ },
  { source: "jwt.exp + 1.0", error: /no matching overload/ },
  { source: "jwt.sub && true", error: /expected bool/ },
  { source: "1 / 0", error: /zero/ },
];
for (const { source, error } of errors) {
  test(`gives an error for ${source} [E3]`, () => {
    const result = compileExpression(source).evaluate(plainAttributes(attributes));
    assert.equal(result.ok, false);
    assert.match(result.ok ? "" : result.error, error);
  });
}

test("a key named __proto__ that is really there is read as data and never sets a prototype", () => {
  const result = compileExpression("jwt").evaluate(
    plainAttributes({ jwt: JSON.parse('{"__proto__": {"admin": true}}') }),
  );
  assert.ok(result.ok);
  assert.equal(Object.getPrototypeOf(result.value), Object.prototype);
  assert.equal(JSON.stringify(result.value), '{"__proto__":{"admin":true}}');
});

test("reads only the attributes that evaluation reaches, and of these only the fields it needs", () => {
  const reads: string[] = [];
  const lazy = {
    get jwt() {
      reads.push("jwt");
      return { sub: "alice" };
    },
    get request() {
      reads.push("request");
      return {
        get method() {
          reads.push("request.method");
          return "GET";
        },
        get body() {
          reads.push("request.body");
          return "";
        },
      };
    },
    get llm() {
      reads.push("llm");
      return {};
    },
  };
  const rule = compileExpression('request.method == "POST" && jwt.sub == "alice"');
  assert.deepEqual(rule.evaluate(plainAttributes(lazy)), { ok: true, value: false });
  assert.deepEqual(reads, ["request", "request.method"]);
  reads.length = 0;
  compileExpression('request.method == "GET" && has(jwt.sub)').evaluate(plainAttributes(lazy));
  assert.deepEqual(reads, ["request", "request.method", "jwt"]);
});

test("attributes may be getters of a class", () => {
  class Attributes extends AttributeSource {
    get jwt() {
      return claims;
    }
  }
  assert.deepEqual(compileExpression("jwt.sub").evaluate(new Attributes()), { ok: true, value: "alice" });
});

const failing = {
  get jwt(): never {
    throw new Error("no keys yet");
  },
  request: {
    method: "GET",
    get body(): never {
      throw new Error("event streams are not buffered");
    },
  },
};
const gettersThatThrow = [
  { source: "jwt.sub", result: { ok: false, error: "no keys yet" } },
  { source: "request.body", result: { ok: false, error: "event streams are not buffered" } },
  { source: "has(request.body)", result: { ok: false, error: "event streams are not buffered" } },
  { source: 'request.method == "GET" || jwt.sub == "x"', result: { ok: true, value: true } },
  { source: 'default(jwt.sub, "nobody")', result: { ok: true, value: "nobody" } },
  { source: "request", result: { ok: false, error: "event streams are not buffered" } },
];
for (const { source, result } of gettersThatThrow) {
  test(`a getter that throws is an evaluation error in ${source}`, () => {
    assert.deepEqual(compileExpression(source).evaluate(plainAttributes(failing)), result);
  });
}

test("leaves the process's stack traces as they were", () => {
  const before = Error.stackTraceLimit;
  compileExpression("jwt.nope").evaluate(plainAttributes({}));
  assert.equal(Error.stackTraceLimit, before);
});

const analyses = [
  { source: '"x" in jwt.realm_access.roles', attributes: ["jwt"], paths: ["jwt.realm_access.roles"] },
  {
    source: 'request.headers["x-id"] == jwt["sub"]',
    attributes: ["request", "jwt"],
    paths: ["request.headers.x-id", "jwt.sub"],
  },
  { source: "request[jwt.sub].deeper", attributes: ["jwt", "request"], paths: ["jwt.sub", "request"] },
  { source: "jwt.roles[0].name", attributes: ["jwt"], paths: ["jwt.roles"] },
  { source: "has(llm.requestModel)", attributes: ["llm"], paths: ["llm.requestModel"] },
  {
    source: "jwt.roles.exists(request, request == apiKey.role)",
    attributes: ["jwt", "apiKey"],
    paths: ["jwt.roles", "apiKey.role"],
  },
  { source: "json(request.body).user.id", attributes: ["request"], paths: ["request.body"] },
  { source: "base64.encode(jwt.sub)", attributes: ["jwt"], paths: ["jwt.sub"] },
  { source: "request.path.matches('^/a')", attributes: ["request"], paths: ["request.path"] },
  { source: "default(jwt.a, jwt.b)", attributes: ["jwt"], paths: ["jwt.a", "jwt.b"] },
  { source: ".jwt.sub", attributes: ["jwt"], paths: ["jwt.sub"] },
  { source: "type(1) == int", attributes: [], paths: [] },
];
for (const { source, attributes, paths } of analyses) {
  test(`knows what ${source} reads`, () => {
    const expression = compileExpression(source);
    assert.deepEqual([...expression.attributes], attributes);
    assert.deepEqual([...expression.paths], paths);
  });
}

const reads = [
  { source: "json(request.body).id == 1", path: "request.body", answer: true },
  { source: "request.method == 'GET'", path: "request.body", answer: false },
  { source: "request.bodyPrefix == ''", path: "request.body", answer: false },
  { source: "toJson(request)", path: "request.body", answer: true },
  { source: "request[jwt.key]", path: "request.body", answer: true },
  { source: "request.body.id == 1", path: "request.body", answer: true },
  { source: "request.body.id == 1", path: "request", answer: true },
  { source: "jwt.sub == 'x'", path: "jwt", answer: true },
  { source: "jwt.sub == 'x'", path: "jw", answer: false },
];
for (const { source, path, answer } of reads) {
  test(`${source} ${answer ? "may read" : "does not read"} ${path}`, () => {
    assert.equal(compileExpression(source).reads(path), answer);
  });
}
