import assert from "node:assert/strict";
import { test } from "node:test";
import { ExpectedError } from "./errors.ts";

test("it says what happened and what caused it, and not where; other errors keep their stack", () => {
  const cause = new Error("because");
  const error = new ExpectedError("it failed", { cause });
  assert.equal(error.message, "it failed");
  assert.equal(error.cause, cause);
  assert.doesNotMatch(error.stack ?? "", /\n/);
  assert.match(new Error("after").stack ?? "", /\n +at /);
});
