import assert from "node:assert/strict";
import { test } from "node:test";
import { testEnv } from "../../../test/support/exchange.ts";
import { timeout } from "./policy.ts";

const durations: [text: string, ms: number][] = [
  ["250ms", 250],
  ["10s", 10_000],
  ["1.5s", 1_500],
  ["5m", 300_000],
  ["1h30m", 5_400_000],
  ["0s", 0],
];
for (const [text, ms] of durations) {
  test(`${text} are ${ms} ms`, () => {
    const { settings } = timeout.compile(timeout.schema.parse({ requestTimeout: text }), testEnv);
    assert.deepEqual(settings, { requestTimeoutMs: ms });
  });
}

test("a missing field is inherited from the outer scope", () => {
  assert.deepEqual(timeout.compile({}, testEnv).settings, {});
  assert.deepEqual(timeout.compile(timeout.schema.parse({ backendRequestTimeout: "1s" }), testEnv).settings, {
    backendTimeoutMs: 1000,
  });
});

for (const bad of ["10", "10 s", "-1s", "s", "1y", "", "1s2", "١s"]) {
  test(`rejects ${JSON.stringify(bad)} as a duration`, () => {
    assert.equal(timeout.schema.safeParse({ requestTimeout: bad }).success, false);
  });
}
