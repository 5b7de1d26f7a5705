import assert from "node:assert/strict";
import { test } from "node:test";
import { ExpectedError } from "./errors.ts";

test("an expected error has a message and a cause but no stack; other errors keep their stack", () => {
  const cause = new Error("because");
  const error = new ExpectedError("it failed", { cause });
  assert.equal(error.message, "it failed");
  assert.equal(error.cause, cause);
  assert.doesNotMatch(error.stack ?? "", /\n/);
  assert.match(new Error("after").stack ?? "", /\n +at /);
});
