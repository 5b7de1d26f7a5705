import assert from "node:assert/strict";
import { test } from "node:test";
import { checkEntry, MAX_KEY_BYTES, MAX_VALUE_BYTES } from "./store.ts";

test("keys and values of the store are limited in bytes, not characters", () => {
  checkEntry("é".repeat(MAX_KEY_BYTES / 2), "é".repeat(MAX_VALUE_BYTES / 2));
  for (const key of ["", "k".repeat(MAX_KEY_BYTES + 1), "é".repeat(MAX_KEY_BYTES / 2 + 1)])
    assert.throws(() => checkEntry(key), RangeError);
  for (const value of ["v".repeat(MAX_VALUE_BYTES + 1), "é".repeat(MAX_VALUE_BYTES / 2 + 1)])
    assert.throws(() => checkEntry("k", value), RangeError);
});
