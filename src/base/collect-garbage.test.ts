import assert from "node:assert/strict";
import { test } from "node:test";
import { collectGarbage } from "./heap-pressure.ts";

test("unreachable objects are collected, and reachable ones are not", () => {
  const kept = { of: "memory" };
  const held = new WeakRef(kept);
  const lost = makeGarbage();
  return new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
    collectGarbage();
    assert.equal(lost.deref(), undefined);
    assert.equal(held.deref(), kept);
    assert.equal("gc" in globalThis, false, "nobody else gets the collector");
  });
});

function makeGarbage(): WeakRef<object> {
  return new WeakRef({ of: "memory" });
}
