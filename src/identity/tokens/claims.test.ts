import assert from "node:assert/strict";
import { test } from "node:test";
import { claimProblem } from "./claims.ts";

const NOW_MS = Date.UTC(2026, 0, 1);
const seconds = NOW_MS / 1000;
const rules = { issuer: "https://idp.example", audiences: ["api"] };
const claims = { iss: rules.issuer, aud: "api", exp: seconds + 60 };

for (const [name, more, problem] of [
  ["issued in an hour", { iat: seconds + 3_600 }, undefined],
  ["with an iat that is no number", { iat: "tomorrow" }, "the token's times are not valid"],
  ["valid within the leeway", { nbf: seconds + 59 }, undefined],
  ["valid in an hour", { nbf: seconds + 3_600 }, "the token is not valid yet"],
  ["expired", { exp: seconds - 61 }, "the token is expired"],
] as const) {
  test(`a token ${name}: ${problem ?? "accepted"}`, () => {
    assert.equal(claimProblem({ ...claims, ...more }, rules, NOW_MS)?.reason, problem);
  });
}
