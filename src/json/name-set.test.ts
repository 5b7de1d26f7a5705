import assert from "node:assert/strict";
import { test } from "node:test";
import { NameSet } from "./validate-json.ts";

test("the set contains exactly the names that were added", () => {
  const names = new NameSet();
  for (let i = 0; i < 20_000; i++) {
    assert.equal(names.has(`k${i}`), false);
    names.add(`k${i}`);
  }
  for (let i = 0; i < 20_000; i++) assert.equal(names.has(`k${i}`), true);
  assert.equal(names.has("k20000"), false);
  assert.equal(names.has(""), false);
  names.add("");
  assert.equal(names.has(""), true);
});
