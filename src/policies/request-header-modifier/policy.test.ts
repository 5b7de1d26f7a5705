import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, anExchange, testEnv } from "../../../test/support/exchange.ts";
import { requestHeaderModifier } from "./policy.ts";

const cases: [name: string, config: object, before: Record<string, string>, after: Record<string, string>][] = [
  ["sets a new header", { set: { "X-A": "1" } }, {}, { "x-a": "1" }],
  ["sets in place of what the client sent", { set: { "x-a": "1" } }, { "x-a": "0" }, { "x-a": "1" }],
  ["adds beside what the client sent", { add: { "x-a": "1" } }, { "x-a": "0" }, { "x-a": "0, 1" }],
  ["removes whatever the case", { remove: ["X-A"] }, { "x-a": "0", "x-b": "1" }, { "x-b": "1" }],
  [
    "removes first, then sets, then adds",
    { remove: ["x-a"], set: { "x-a": "1" }, add: { "x-a": "2" } },
    { "x-a": "0" },
    { "x-a": "1, 2" },
  ],
  ["leaves the rest alone", { remove: ["x-none"] }, { "x-b": "1" }, { "x-b": "1" }],
];
for (const [name, config, before, after] of cases) {
  test(name, () => {
    const exchange = anExchange({ headers: before });
    void requestHeaderModifier.compile(requestHeaderModifier.schema.parse(config), testEnv).shape?.head?.(exchange);
    const { headers } = exchange.request;
    assert.deepEqual(Object.fromEntries([...headers.names()].map((header) => [header, headers.get(header)])), after);
  });
}

test("setting Host changes the authority, if the value is one", () => {
  for (const [host, sent] of [
    ["inner.test:81", "inner.test:81"],
    ["a b", "gateway.test"],
  ] as const) {
    const exchange = anExchange();
    void requestHeaderModifier.compile({ set: { host } }, testEnv).shape?.head?.(exchange);
    assert.equal(exchange.request.host, sent);
  }
});

test("does not change responses", () => {
  const hooks = requestHeaderModifier.compile({ set: { "x-a": "1" } }, testEnv);
  assert.equal(hooks.response, undefined);
  assert.equal(anAnsweredExchange().response?.headers.get("x-a"), undefined);
});

for (const config of [
  { set: { "x y": "1" } },
  { set: { "x-a": "1\r\nx-b: 2" } },
  { set: { "x-a": 1 } },
  { set: { "Content-Length": "1" } },
  { set: { "transfer-encoding": "chunked" } },
  { remove: ["connection"] },
  { add: { "": "1" } },
  { replace: {} },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(requestHeaderModifier.schema.safeParse(config).success, false);
  });
}
