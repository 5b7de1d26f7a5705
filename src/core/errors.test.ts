import assert from "node:assert/strict";
import { test } from "node:test";
import { ERRORS, type ErrorCode, GatewayError } from "./errors.ts";

for (const code of Object.keys(ERRORS) as ErrorCode[])
  test(`${code}: has a readable message and captures no stack`, () => {
    const error = new GatewayError(code);
    assert.match(error.message, /^[a-z].*[^.]$/i);
    assert.doesNotMatch(error.stack ?? "", /\n +at /);
    assert.ok(error.status >= 400 && error.status < 600);
  });
