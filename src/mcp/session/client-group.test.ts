import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { laneOwnerOf, ownerOf } from "./client-group.ts";

test("without authentication a session has no owner, whatever headers say", () => {
  assert.equal(ownerOf(anExchange({ headers: { authorization: "Bearer one" } })), undefined);
});

test("who was let in by two policies is somebody else than who was by one of them", () => {
  const one = anExchange();
  one.authenticated("a");
  const both = anExchange();
  both.authenticated("a");
  both.authenticated("b");
  assert.notEqual(ownerOf(one), ownerOf(both));
});

test("a lane of clients that nobody knows is one per address and credential", () => {
  const lane = (headers: Record<string, string>, forwarded: string[] = []): string =>
    laneOwnerOf(anExchange({ headers }), forwarded);
  assert.equal(lane({}), lane({ "x-tenant": "t" }));
  const all = [
    lane({}),
    lane({ authorization: "Bearer s3cret" }),
    lane({ authorization: "Bearer other" }),
    lane({ "x-tenant": "s3cret" }, ["x-tenant"]),
    lane({ "x-tenant": "other" }, ["x-tenant"]),
    lane({ authorization: "Bearer s3cret", "x-tenant": "other" }, ["x-tenant"]),
  ];
  assert.equal(new Set(all).size, all.length);
  for (const one of all) assert.ok(!one.includes("s3cret"));
});

test("a client that is known shares its lane with itself only", () => {
  const exchange = anExchange({ headers: { authorization: "Bearer one" } });
  exchange.authenticated("key:a");
  assert.equal(laneOwnerOf(exchange, ["authorization"]), "key:a");
});
