import assert from "node:assert/strict";
import { test } from "node:test";
import { fitsInside } from "./session-records.ts";

const MAX_PARAMS_BYTES = 256 * 1024;

test("parameters fit into a session id up to a number of bytes, which is the limit when the id is read", () => {
  assert.equal(fitsInside("x".repeat(MAX_PARAMS_BYTES)), true);
  assert.equal(fitsInside("x".repeat(MAX_PARAMS_BYTES + 1)), false);
  assert.equal(fitsInside("é".repeat(MAX_PARAMS_BYTES / 2)), true);
  assert.equal(fitsInside("é".repeat(MAX_PARAMS_BYTES / 2 + 1)), false);
});
