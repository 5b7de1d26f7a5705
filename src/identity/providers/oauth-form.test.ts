import assert from "node:assert/strict";
import { test } from "node:test";
import { peerInput } from "../../base/peer-inputs.ts";
import { parseForm, requireUnique, serializeForm } from "./oauth-form.ts";
import { OAuthRequestError } from "./provider.ts";

test("a parameter occurs once, whatever its case and encoding", () => {
  for (const form of ["a=1&a=2", "scope=1&b=2&SCOPE=3", "scope=1&%73cope=2", "a&a"])
    assert.throws(() => requireUnique(parseForm(form)), OAuthRequestError, form);
  requireUnique(parseForm("a=1&b=1&aa=1"));
});

test("a form has as many parameters and bytes as its entry allows", () => {
  const { maxBytes, maxItems } = peerInput("client/login-form");
  const fields = (count: number): string => Array.from({ length: count }, (_, i) => `a${i}=1`).join("&");
  assert.equal(parseForm(fields(maxItems)).length, maxItems);
  assert.throws(() => parseForm(fields(maxItems + 1)), OAuthRequestError);
  assert.equal(parseForm(`a=${"x".repeat(maxBytes - 2)}`).length, 1);
  assert.throws(() => parseForm(`a=${"x".repeat(maxBytes - 1)}`), OAuthRequestError);
});

test("parameters that are forwarded keep their bytes", () => {
  const form = "a=%7e&b=+&c";
  assert.equal(serializeForm(parseForm(form)), form);
});
