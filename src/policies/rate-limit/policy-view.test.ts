/** The admin view of rate limits: the most used keys, rejections, and the key search. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { limitEnv, limitExchange, request } from "../../../test/support/rate-limit-service/limit-env.ts";
import { admitted, compileLocal } from "../../../test/support/rate-limit-service/local-attempts.ts";

test("the view shows the most used keys and the rejections; values from headers are hidden", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 2, unit: "Minutes", key: "jwt.sub" })];
  await admitted(scopes, 3, { jwt: { sub: "alice" } });
  await admitted(scopes, 1, { jwt: { sub: "bob" } });
  assert.deepEqual(env.views(), [
    {
      owner: "route test",
      rule: { requests: 2, unit: "Minutes", key: "jwt.sub" },
      bucketsInUse: 2,
      refusals: 1,
      buckets: [
        { key: "alice", remaining: 0, limit: 2, resetSeconds: 60 },
        { key: "bob", remaining: 1, limit: 2, resetSeconds: 60 },
      ],
    },
  ]);
  const secret = limitEnv();
  const keyed = [compileLocal(secret, { requests: 2, unit: "Minutes", key: 'request.headers["x-api-key"]' })];
  await request(keyed, limitExchange({}, { "x-api-key": "hunter2" }));
  assert.match(secret.views()[0]?.buckets[0]?.key ?? "", /^#[0-9a-f]{12}$/);
});

test("a search finds every key, including full buckets, hidden keys and hashed keys", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 2, unit: "Minutes", key: "jwt.sub" })];
  for (let i = 0; i < 300; i++) await admitted(scopes, 2, { jwt: { sub: `busy-${i}` } });
  await admitted(scopes, 1, { jwt: { sub: "quiet" } });
  const long = "x".repeat(1000);
  await admitted(scopes, 1, { jwt: { sub: long } });
  const found = (key: string): (string | undefined)[] => env.views(key)[0]?.buckets.map((bucket) => bucket.key) ?? [];
  assert.equal(env.views()[0]?.buckets.length, 20);
  assert.equal(env.views("busy-299")[0]?.bucketsInUse, 302);
  assert.deepEqual(found("quiet"), ["quiet"]);
  assert.deepEqual(found("nobody"), []);
  assert.equal(found("busy").length, 100);
  assert.equal(found(long).length, 1);
  env.advance(60_000);
  assert.deepEqual(found("quiet"), ["quiet"], "full again, but still held");
  const secret = limitEnv();
  const keyed = [compileLocal(secret, { requests: 2, unit: "Minutes", key: 'request.headers["x-api-key"]' })];
  await request(keyed, limitExchange({}, { "x-api-key": "hunter2" }));
  const [bucket] = secret.views("hunter2")[0]?.buckets ?? [];
  assert.match(bucket?.key ?? "", /^#[0-9a-f]{12}$/);
  assert.deepEqual(secret.views("hunter")[0]?.buckets, [], "parts of a hidden key find nothing");
});
