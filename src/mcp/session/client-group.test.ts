import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { clientGroupOwner, sessionOwner } from "./client-group.ts";

test("without authentication a session has no owner, whatever headers say", () => {
  assert.equal(sessionOwner(anExchange({ headers: { authorization: "Bearer one" } })), undefined);
});

test("a client with two principals differs from a client with one of them", () => {
  const one = anExchange();
  one.authenticated("a");
  const both = anExchange();
  both.authenticated("a");
  both.authenticated("b");
  assert.notEqual(sessionOwner(one), sessionOwner(both));
});

test("unauthenticated clients have a group per address and credential", () => {
  const group = (headers: Record<string, string>, forwarded: string[] = []): string =>
    clientGroupOwner(anExchange({ headers }), forwarded);
  assert.equal(group({}), group({ "x-tenant": "t" }));
  const all = [
    group({}),
    group({ authorization: "Bearer s3cret" }),
    group({ authorization: "Bearer other" }),
    group({ "x-tenant": "s3cret" }, ["x-tenant"]),
    group({ "x-tenant": "other" }, ["x-tenant"]),
    group({ authorization: "Bearer s3cret", "x-tenant": "other" }, ["x-tenant"]),
  ];
  assert.equal(new Set(all).size, all.length);
  for (const one of all) assert.ok(!one.includes("s3cret"));
});

test("a client that is known shares its group with itself only", () => {
  const exchange = anExchange({ headers: { authorization: "Bearer one" } });
  exchange.authenticated("key:a");
  assert.equal(clientGroupOwner(exchange, ["authorization"]), "key:a");
});
