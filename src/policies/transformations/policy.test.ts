import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, anExchange, testEnv } from "../../../test/support/exchange.ts";
import { transformations } from "./policy.ts";

function compile(config: object) {
  return transformations.compile(transformations.schema.parse(config), testEnv);
}

const headers: [name: string, source: string, value: string | undefined][] = [
  ["a text", '"a" + "b"', "ab"],
  ["a number", "1 + 2", "3"],
  ["a truth value", "request.method == 'GET'", "true"],
  ["a list as JSON", "[1, 'a']", '[1,"a"]'],
  ["a claim", "jwt.sub", "alice"],
  ["a header of the request", 'request.headers["x-in"]', "in"],
  ["what is absent: none is left", "jwt.none", undefined],
  ["null: none is left", "null", undefined],
  ["a value with a line break: none is left", '"a\\r\\nx-evil: 1"', undefined],
  ["a value that is no latin1: none is left", '"\\u20ac"', undefined],
];
for (const [name, source, value] of headers) {
  test(`sets a header from ${name}`, () => {
    const exchange = anExchange({ headers: { "x-out": "before", "x-in": "in" }, jwt: { sub: "alice" } });
    void compile({ request: { set: { "x-out": source } } }).shape?.head?.(exchange);
    assert.equal(exchange.request.headers.get("x-out"), value);
  });
}

test("removes, then sets, then adds", () => {
  const exchange = anExchange({ headers: { "x-a": "0", "x-b": "0" } });
  void compile({ request: { remove: ["x-a"], set: { "x-b": '"1"' }, add: { "x-b": '"2"' } } }).shape?.head?.(exchange);
  assert.deepEqual({ ...exchange.request.headers.toObject() }, { "x-b": ["1", "2"] });
});

test("setting Host changes the authority, if the value is one", () => {
  const exchange = anExchange({ headers: { "x-tenant": "blue", host: "gateway.test" } });
  void compile({ request: { set: { host: 'request.headers["x-tenant"] + ".inner.test"' } } }).shape?.head?.(exchange);
  assert.equal(exchange.request.host, "blue.inner.test");
  const hostile = anExchange({ headers: { "x-tenant": "evil.test/", host: "gateway.test" } });
  void compile({ request: { set: { host: 'request.headers["x-tenant"] + ".inner.test"' } } }).shape?.head?.(hostile);
  assert.equal(hostile.request.host, "", "the backend gets its own address, not the Host that the client chose");
  const anonymous = anExchange({ headers: { host: "gateway.test" } });
  void compile({ request: { set: { host: "jwt.tenant" } } }).shape?.head?.(anonymous);
  assert.equal(anonymous.request.host, "");
});

test("a failed response expression removes the backend's header of that name", () => {
  const exchange = anAnsweredExchange({ responseHeaders: { "x-user": "a", X_User: "b", "x-other": "c" } });
  void compile({ response: { set: { "x-user": "jwt.sub" } } }).response?.head(exchange);
  assert.deepEqual({ ...exchange.response?.headers.toObject() }, { "x-other": "c" });
});

test("an expression can read the client's header that it replaces", () => {
  const exchange = anExchange({ headers: { "x-user": "client" } });
  exchange.request.headers.add("x_user", "other");
  void compile({ request: { set: { "x-user": '"seen " + request.headers["x-user"]' } } }).shape?.head?.(exchange);
  assert.deepEqual({ ...exchange.request.headers.toObject() }, { "x-user": "seen client" });
});

test("bodies are set from strings or as JSON, and expressions that read a body request buffering", () => {
  const exchange = anExchange({ method: "POST", body: '{"a":1}', headers: { "content-encoding": "x" } });
  const hooks = compile({ request: { body: '{"b": json(request.body).a + 1}' } });
  void hooks.shape?.head?.(exchange);
  assert.deepEqual(exchange.request.body, { kind: "bytes", bytes: Buffer.from('{"b":2}') });
  assert.equal(exchange.request.headers.get("content-encoding"), undefined);
  assert.ok(hooks.shape?.bodyBytes);
  assert.equal(hooks.response, undefined);
  const ofResponse = compile({ response: { set: { "x-a": "size(response.body)" } } });
  assert.equal(ofResponse.shape?.bodyBytes, undefined);
  assert.equal(ofResponse.response?.readsBody, true);
});

test("a failed body expression leaves the body unchanged", () => {
  const exchange = anExchange({ method: "POST", body: "no json" });
  void compile({ request: { body: "json(request.body).a" } }).shape?.head?.(exchange);
  assert.deepEqual(exchange.request.body, { kind: "bytes", bytes: Buffer.from("no json") });
});

test("response expressions can read the response", () => {
  const exchange = anAnsweredExchange({ status: 404, responseHeaders: { server: "x" } });
  void compile({ response: { set: { "x-code": "response.code" }, remove: ["server"], body: '"gone"' } }).response?.head(
    exchange,
  );
  assert.deepEqual({ ...exchange.response?.headers.toObject() }, { "x-code": "404" });
  assert.equal(exchange.response?.replacement?.toString(), "gone");
});

for (const config of [
  { request: { set: { "x-a": "1 +" } } },
  { request: { set: { "x-a": "nosuch(1)" } } },
  { request: { set: { "content-length": "1" } } },
  { request: { set: { "x y": "1" } } },
  { request: { delete: ["x"] } },
  { requests: {} },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(transformations.schema.safeParse(config).success, false);
  });
}
