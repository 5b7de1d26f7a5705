import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../../base/sliced-work.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { GuardRejection, guardParts } from "./guarded-text.ts";
import { compileTextGuard } from "./text-guard.ts";

const someGuard = fc
  .record({
    action: fc.constantFrom("mask" as const, "reject" as const),
    rules: fc.array(
      fc.constantFrom({ builtin: "email" as const }, { pattern: "ab+" }, { pattern: "<masked>" }, { pattern: "^x" }),
      { minLength: 1, maxLength: 2 },
    ),
  })
  .map(({ action, rules }) => compileTextGuard(action, rules, { status: 403, message: "no" }));
const someText = fc
  .array(fc.constantFrom("a", "b", "x", " ", "me@example.com", "<masked>"), { maxLength: 8 })
  .map((parts) => parts.join(""));

test("a guard in shadow mode finds something exactly when the enforced one changes or rejects", () => {
  const seen = { found: 0, nothing: 0 };
  fc.assert(
    fc.property(fc.array(someGuard, { minLength: 1, maxLength: 3 }), someText, (guards: TextGuard[], text) => {
      let isRejected = false;
      let guarded = text;
      try {
        guarded = finish(guardParts([text], guards))[0] ?? "";
      } catch (error) {
        assert.ok(error instanceof GuardRejection);
        isRejected = true;
      }
      const found: TextGuard[] = [];
      const [watched] = finish(guardParts([text], guards, (guard) => void found.push(guard)));
      assert.equal(
        found.some(({ action }) => action === "reject"),
        isRejected,
      );
      if (!isRejected) assert.equal(watched, guarded);
      if (!isRejected && guarded !== text) assert.ok(found.length > 0);
      if (found.length === 0) assert.equal(guarded, text);
      seen[found.length > 0 ? "found" : "nothing"] += 1;
    }),
    { numRuns: 500, seed: 21 },
  );
  assert.ok(seen.found > 50 && seen.nothing > 50, JSON.stringify(seen));
});
