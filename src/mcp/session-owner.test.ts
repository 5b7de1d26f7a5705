import assert from "node:assert/strict";
import { test } from "node:test";
import { Exchange, type Facts, NO_BODY } from "../core/exchange.ts";
import { HeaderList } from "../lib/headers.ts";
import { ownerOf } from "./session-owner.ts";

function owner(facts: Facts, authorization?: string): string | undefined {
  const exchange = new Exchange({
    id: "x",
    listener: "l",
    source: { address: "::1", port: 1 },
    startedAt: 0,
    startedMs: 0,
    request: {
      method: "POST",
      scheme: "http",
      host: "h",
      path: "/",
      query: "",
      version: "1.1",
      headers: HeaderList.of(authorization === undefined ? {} : { authorization }),
      body: NO_BODY,
    },
  });
  Object.assign(exchange.facts, facts);
  return ownerOf(exchange);
}

test("a refreshed token of the same subject is the same owner", () => {
  const first = owner({ jwt: { iss: "i", sub: "u", iat: 1, jti: "a" } }, "Bearer one");
  const second = owner({ jwt: { iss: "i", sub: "u", iat: 2, jti: "b" } }, "Bearer two");
  assert.equal(first, second);
});

const different = [
  [{ jwt: { iss: "i", sub: "u" } }, { jwt: { iss: "i", sub: "v" } }],
  [{ jwt: { iss: "i", sub: "u" } }, { jwt: { iss: "j", sub: "u" } }],
  [{ jwt: { iss: "i", azp: "a" } }, { jwt: { iss: "i", azp: "b" } }],
  [{ basicAuth: { username: "a" } }, { basicAuth: { username: "b" } }],
  [{ apiKey: { user_id: "a" } }, { apiKey: { user_id: "b" } }],
  [{ apiKey: { user_id: "a" } }, {}],
] as const;
for (const [one, other] of different) {
  test(`${JSON.stringify(one)} and ${JSON.stringify(other)} are different owners`, () => {
    assert.notEqual(owner(one), owner(other));
  });
}

for (const claim of ["sub", "azp", "client_id", "appid"]) {
  test(`without the claims before it, ${claim} names the owner`, () => {
    assert.equal(owner({ jwt: { iss: "i", [claim]: "x" } }), "jwt:i|x");
  });
}

test("without any of them the token itself does, and nobody sees it", () => {
  const named = owner({}, "Bearer s3cret");
  assert.ok(named !== undefined && !named.includes("s3cret"));
  assert.notEqual(named, owner({}, "Bearer other"));
  assert.equal(owner({}), undefined);
});
