import assert from "node:assert/strict";
import { test } from "node:test";
import { ruleText } from "./limit-buckets.ts";

const rules: readonly [rule: Readonly<Record<string, unknown>>, text: string][] = [
  [{ requests: 1, unit: "Hours" }, "1 request per hour"],
  [{ requests: 5, unit: "Minutes", key: "source.address" }, "5 requests per minute by source.address"],
  [{ tokens: 1, unit: "Seconds", burst: 2 }, "1 token per second, burst 2"],
  [{ tokens: 10 }, "10 tokens"],
];
for (const [rule, text] of rules)
  test(`a limit is shown as "${text}"`, () => {
    assert.equal(ruleText({ rule }), text);
  });
