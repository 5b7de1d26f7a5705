import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange } from "../../core/exchange.ts";
import { backendAuth } from "./policy.ts";

function authenticated(): Exchange {
  const exchange = anExchange({ headers: { authorization: "Bearer client-token" } });
  exchange.credentials.headers = ["authorization"];
  exchange.credentials.presented = { header: "authorization", value: "Bearer client-token" };
  return exchange;
}

function run(config: unknown, exchange: Exchange, env = testEnv): Exchange {
  const hooks = backendAuth.compile(backendAuth.schema.parse(config), env);
  assert.equal(hooks.shape?.head?.(exchange), undefined);
  return exchange;
}

test("on a route the client's credential is no longer withheld", () => {
  const exchange = run({ passthrough: {} }, authenticated());
  assert.deepEqual(exchange.credentials.headers, []);
  assert.equal(exchange.request.headers.get("authorization"), "Bearer client-token");
});

test("on a backend the credential is restored for this attempt only", () => {
  const exchange = authenticated();
  exchange.attributes.backend = { name: "b", type: "static", protocol: "http" };
  exchange.request.headers.delete("authorization");
  run({ passthrough: {} }, exchange);
  assert.equal(exchange.request.headers.get("authorization"), "Bearer client-token");
  assert.deepEqual(exchange.credentials.headers, ["authorization"], "another backend still does not get it");
});

test("passthrough without an authenticated credential changes nothing", () => {
  const exchange = run({ passthrough: {} }, anExchange({ headers: { authorization: "Bearer x" } }));
  assert.equal(exchange.request.headers.get("authorization"), "Bearer x");
});

test("a key replaces the client's header", () => {
  const exchange = run({ key: "gateway-key" }, authenticated());
  assert.deepEqual(exchange.request.headers.getAll("authorization"), ["Bearer gateway-key"]);
  assert.deepEqual(exchange.credentials.headers, []);
});

test("a key can come from a file and use another header", () => {
  const env = { ...testEnv, readFile: () => "file-key\n" };
  const exchange = run({ key: { file: "key.txt" }, header: { name: "X-Api-Key" } }, authenticated(), env);
  assert.equal(exchange.request.headers.get("x-api-key"), "file-key");
  assert.deepEqual(exchange.credentials.headers, ["authorization"], "the client's own stays withheld");
});

test("an empty or invalid key fails the load", () => {
  for (const text of ["\n", "a\u0000b"]) {
    const env = { ...testEnv, readFile: () => text };
    assert.throws(() => run({ key: { file: "k" } }, authenticated(), env), { name: "ConfigError", path: "key" });
  }
});

for (const config of [
  {},
  { key: "" },
  { key: "a", passthrough: {} },
  { passthrough: { x: 1 } },
  { key: "a", header: { name: "content-length" } },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(backendAuth.schema.safeParse(config).success, false);
  });
}
