import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../base/sliced-work.ts";
import { compileResultGuard, compileResultWatch } from "./compile-targets.ts";
import { asServerMessage, resultText } from "./protocol/json-rpc.ts";
import { guardedMessage, watchedMessage } from "./tools/result-guard.ts";

const someGuard = fc.record({
  regex: fc.record({
    action: fc.constantFrom("mask" as const, "reject" as const),
    rules: fc.array(
      fc.constantFrom({ builtin: "email" as const }, { pattern: "ab+" }, { pattern: "<masked>" }, { pattern: "^x" }),
      { minLength: 1, maxLength: 2 },
    ),
  }),
});
const someText = fc
  .array(fc.constantFrom("a", "b", "x", " ", "me@example.com", "<masked>"), { maxLength: 6 })
  .map((parts) => parts.join(""));
const someResult = fc.array(someText, { maxLength: 4 }).map((texts) => ({
  content: texts.map((text) => ({ type: "text", text })),
}));

test("result guards in shadow mode find something exactly when the enforced ones change or reject", () => {
  const seen = { rejected: 0, masked: 0, nothing: 0 };
  fc.assert(
    fc.property(fc.array(someGuard, { minLength: 1, maxLength: 3 }), someResult, (configs, result) => {
      const [guard, watch] = [compileResultGuard(configs), compileResultWatch(configs)];
      assert.ok(guard && watch);
      const message = asServerMessage(resultText("1", JSON.stringify(result)));
      const passed = finish(guardedMessage(message, guard, "tools/call"));
      assert.ok(passed);
      const found = finish(watchedMessage(message, watch));
      const isRejected = passed.text.includes('"isError":true');
      const verdict = isRejected ? "rejected" : passed.text === message.text ? "nothing" : "masked";
      const watched = found.length === 0 ? "nothing" : found[0]?.action === "reject" ? "rejected" : "masked";
      // A mask may take what is there for what it puts there: then nothing changes, and nothing is found.
      assert.equal(watched, verdict);
      seen[verdict] += 1;
    }),
    { numRuns: 500, seed: 21 },
  );
  assert.ok(Math.min(seen.rejected, seen.masked, seen.nothing) > 30, JSON.stringify(seen));
});

test("a result that is too large to be looked at would be rejected", () => {
  const watch = compileResultWatch([{ regex: { action: "mask", rules: [{ builtin: "email" }] } }]);
  assert.ok(watch);
  const large = asServerMessage(resultText("1", JSON.stringify({ content: [{ text: "y".repeat(2_200_000) }] })));
  assert.deepEqual(finish(watchedMessage(large, watch)), [{ rule: "email", action: "reject" }]);
});
