import assert from "node:assert/strict";
import { test } from "node:test";
import { nearestName } from "./nearest-name.ts";

const known = ["request", "response", "apiKey", "lowerAscii", "base64.encode", "has", "jwt"];
const cases = [
  { name: "reqest", nearest: "request" },
  { name: "api_key", nearest: "apiKey" },
  { name: "base64Encode", nearest: "base64.encode" },
  { name: "lowercase", nearest: "lowerAscii" },
  { name: "jwtt", nearest: "jwt" },
  { name: "jtw", nearest: "jwt" },
  { name: "baz", nearest: undefined },
  { name: "frobnicate", nearest: undefined },
];
for (const { name, nearest } of cases) {
  test(`${name} stands for ${nearest ?? "nothing known"}`, () => assert.equal(nearestName(name, known), nearest));
}
