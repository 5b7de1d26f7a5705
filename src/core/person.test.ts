import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type IdentifiedBy,
  keyPrincipal,
  personDescription,
  personName,
  tokenPrincipal,
  userPrincipal,
} from "./principal.ts";

const iss = "https://id.example";
const jwt = tokenPrincipal({ iss, sub: "u1" }, "");
const key = keyPrincipal(Buffer.from("digest"));
const digits = /key:([0-9a-f]{8})/.exec(key)?.[1];

const cases: [identified: IdentifiedBy, principal: string, name: string, description: string][] = [
  [{ jwt: { iss, sub: "u1", name: "Ann", email: "ann@x.example" } }, jwt, "Ann", `Ann, ann@x.example at ${iss}`],
  [{ jwt: { iss, sub: "u1", preferred_username: "ann" } }, jwt, "ann", `ann at ${iss}`],
  [{ jwt: { iss, sub: "u1", name: "Ann" } }, jwt, "Ann", `Ann, u1 at ${iss}`],
  [{ jwt: { iss, sub: "u1" } }, jwt, "u1", `u1 at ${iss}`],
  [{ basicAuth: { username: "bob" } }, userPrincipal("bob", "line"), "bob", "bob"],
  [{ apiKey: { user: "carol" } }, key, "carol", `carol (API key ${digits})`],
  [{ apiKey: { name: "laptop", id: "1" } }, key, "laptop", `laptop (API key ${digits})`],
  [{ apiKey: {} }, key, `key:${digits}`, `the API key ${digits}`],
  // User-controlled text cannot hide or reorder the rest of the line.
  [{ jwt: { iss, sub: "u1", name: "Ann\u202e\n\u0000\u200b" } }, jwt, "Ann", `Ann, u1 at ${iss}`],
  [{ jwt: { iss, sub: "u1", name: "\u200b", email: 7 } }, jwt, "u1", `u1 at ${iss}`],
];
for (const [identified, principal, name, description] of cases)
  test(`${JSON.stringify(identified)} is shown as ${JSON.stringify(description)} [D34]`, () => {
    assert.equal(personName(identified, principal), name);
    assert.equal(personDescription(identified, principal), description);
  });

test("long names are truncated, and an unauthenticated client has no name", () => {
  assert.equal(personName({ jwt: { name: "x".repeat(8_000) } }, jwt)?.length, 200);
  assert.equal(personName({}, undefined), undefined);
});
