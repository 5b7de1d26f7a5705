import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, anExchange, testEnv } from "../../../test/support/exchange.ts";
import { responseHeaderModifier } from "./policy.ts";

test("removes, sets and adds headers of the response only", () => {
  const exchange = anAnsweredExchange({
    headers: { server: "client's" },
    responseHeaders: { server: "x", "x-a": "0" },
  });
  void responseHeaderModifier
    .compile({ remove: ["server"], set: { "x-a": "1" }, add: { "x-b": "2" } }, testEnv)
    .response?.head(exchange);
  assert.deepEqual({ ...exchange.response?.headers.toObject() }, { "x-a": "1", "x-b": "2" });
  assert.equal(exchange.request.headers.get("server"), "client's");
});

test("does nothing without a response", () => {
  const exchange = anExchange();
  void responseHeaderModifier.compile({ set: { "x-a": "1" } }, testEnv).response?.head(exchange);
  assert.equal(exchange.response, undefined);
});
