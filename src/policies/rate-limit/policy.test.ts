import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type LimitEnv,
  limitEnv,
  limitExchange,
  request,
  respond,
  settleAll,
} from "../../../test/support/rate-limit-service/limit-env.ts";
import { admitted, attempt, compileLocal } from "../../../test/support/rate-limit-service/local-attempts.ts";
import type { Hooks } from "../../core/policy.ts";
import type { RequestAttributes } from "../../core/request-attributes.ts";
import { rateLimit } from "./policy.ts";

const refusedConfigs = [
  { name: "both requests and tokens", local: [{ requests: 1, tokens: 1, unit: "Seconds" }] },
  { name: "neither requests nor tokens", local: [{ unit: "Seconds" }] },
  { name: "a zero limit", local: [{ requests: 0, unit: "Seconds" }] },
  { name: "a negative burst", local: [{ requests: 1, unit: "Seconds", burst: -1 }] },
  { name: "half a request", local: [{ requests: 1.5, unit: "Seconds" }] },
  { name: "no unit", local: [{ requests: 1 }] },
  { name: "an unknown unit", local: [{ requests: 1, unit: "Days" }] },
  { name: "a burst of tokens", local: [{ tokens: 1, unit: "Seconds", burst: 1 }] },
  { name: "reserved output of requests", local: [{ requests: 1, unit: "Seconds", reserveOutput: true }] },
  { name: "a key that does not parse", local: [{ requests: 1, unit: "Seconds", key: "jwt." }] },
  { name: "an unknown field", local: [{ requests: 1, unit: "Seconds", per: "user" }] },
  { name: "no entry", local: [] },
  { name: "neither local nor global", local: undefined },
];
for (const { name, local } of refusedConfigs) {
  test(`rejects a configuration with ${name}`, () => {
    assert.equal(rateLimit.schema.safeParse({ local }).success, false);
  });
}

test("a limit of 3 with a burst of 3 admits 6, then 3 in every second window", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 3, burst: 3, unit: "Seconds" })];
  assert.equal(await admitted(scopes, 10), 6);
  env.advance(1000);
  assert.equal(await admitted(scopes, 10), 3);
  env.advance(999);
  assert.equal(await admitted(scopes, 10), 0);
  env.advance(1);
  assert.equal(await admitted(scopes, 10), 3);
  env.advance(5000);
  assert.equal(await admitted(scopes, 10), 6, "what was not used comes back up to the burst");
});

test("changes of the wall clock do not move windows [B6]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 1, unit: "Hours" })];
  assert.equal(await admitted(scopes, 2), 1);
  for (const byMs of [-3_600_000, 7_200_000, 7_200_000]) {
    env.setWallClock(byMs);
    assert.equal(await admitted(scopes, 1), 0);
  }
  env.advance(3_600_000);
  assert.equal(await admitted(scopes, 2), 1);
});

test("responses carry limit, remaining and reset; a 429 also retry-after", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 2, unit: "Minutes" })];
  const { pairs } = await request(scopes, limitExchange());
  assert.deepEqual(pairs, ["x-ratelimit-limit", "2", "x-ratelimit-remaining", "1", "x-ratelimit-reset", "60"]);
  await request(scopes, limitExchange());
  env.advance(20_001);
  assert.deepEqual(await attempt(scopes), {
    "x-ratelimit-limit": "2",
    "x-ratelimit-remaining": "0",
    "x-ratelimit-reset": "40",
    "retry-after": "40",
  });
});

test("limit headers from a backend are replaced, or removed if no limit applied [B7]", async () => {
  const env = limitEnv();
  const spoofed = {
    "x-ratelimit-limit": "999",
    "x-ratelimit-remaining": "998",
    "x-ratelimit-reset": "0",
  };
  const scopes = [compileLocal(env, { requests: 5, unit: "Seconds" })];
  const exchange = limitExchange();
  exchange.response = undefined;
  scopes[0]?.admit?.head?.(exchange);
  assert.deepEqual((await respond(scopes, exchange, spoofed)).pairs, []);
  const limited = limitExchange();
  scopes[0]?.admit?.head?.(limited)?.take();
  assert.equal((await respond(scopes, limited, spoofed)).get("x-ratelimit-limit"), "5");
});

test("every entry must pass, and a rejection by one charges none of the others", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 4, unit: "Hours" }, { requests: 2, unit: "Seconds" })];
  assert.equal(await admitted(scopes, 5), 2);
  env.advance(1000);
  assert.equal(await admitted(scopes, 5), 2);
  env.advance(1000);
  assert.equal(await admitted(scopes, 5), 0);
});

const REFUNDED: [string, (env: LimitEnv) => Hooks[]][] = [
  [
    "a token entry beside it",
    (env) => [compileLocal(env, { requests: 9, unit: "Hours" }, { tokens: 10, unit: "Hours" })],
  ],
  [
    "a token entry of the route, and it stands at the gateway",
    (env) => [compileLocal(env, { requests: 9, unit: "Hours" }), compileLocal(env, { tokens: 10, unit: "Hours" })],
  ],
  [
    "a later policy of the admission",
    (env) => {
      let calls = 0;
      const confirm = async (): Promise<void> => {
        calls += 1;
        if (calls > 1) throw new Error("the service refuses");
      };
      const service: Hooks = { admit: { head: () => ({ take: () => undefined, giveBack: () => undefined, confirm }) } };
      return [compileLocal(env, { requests: 9, unit: "Hours" }), service];
    },
  ],
];
for (const [name, compileAll] of REFUNDED) {
  test(`a request limit is refunded when the request is rejected by ${name}`, async () => {
    const env = limitEnv();
    const scopes = compileAll(env);
    const first = limitExchange({ llm: { estimatedTokens: 10 } });
    await request(scopes, first);
    for (let i = 0; i < 20; i++) {
      const refused = limitExchange({ llm: { estimatedTokens: 10 } });
      await assert.rejects(request(scopes, refused));
      settleAll(scopes, refused, { status: 429, end: "complete", responseBytes: 0 });
    }
    const [requests] = env.views();
    assert.equal(requests?.buckets[0]?.remaining, 8);
  });
}

test("gateway and route limits both apply, and a rejection by one does not charge the other", async () => {
  const env = limitEnv("gateway default");
  const gateway = compileLocal(env, { requests: 3, unit: "Hours" });
  const one = rateLimit.compile(rateLimit.schema.parse({ local: [{ requests: 2, unit: "Hours" }] }), {
    ...env.env,
    scopeName: "route one",
  });
  assert.equal(await admitted([gateway, one], 5), 2);
  assert.equal(await admitted([gateway], 5), 1, "the ceiling was charged with two, not five");
});

test("the headers show the limit with the smallest remaining share, on a 429 the one that was reached", async () => {
  const env = limitEnv();
  const gateway = compileLocal(env, { requests: 100, unit: "Hours" });
  const route = rateLimit.compile(rateLimit.schema.parse({ local: [{ requests: 2, unit: "Seconds" }] }), {
    ...env.env,
    scopeName: "route one",
  });
  for (const scopes of [
    [gateway, route],
    [route, gateway],
  ]) {
    const headers = await request(scopes, limitExchange());
    assert.equal(headers.get("x-ratelimit-limit"), "2");
  }
  const exchange = limitExchange();
  await assert.rejects(request([gateway, route], exchange));
  exchange.response = undefined;
  assert.equal((await respond([gateway, route], exchange)).get("x-ratelimit-remaining"), "0");
});

test("each value of the key has its own bucket [S2.6-6]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 2, unit: "Hours", key: "jwt.sub" })];
  assert.equal(await admitted(scopes, 3, { jwt: { sub: "alice" } }), 2);
  assert.equal(await admitted(scopes, 3, { jwt: { sub: "bob" } }), 2);
  const byKey = [compileLocal(env, { requests: 2, unit: "Hours", key: "apiKey.user_id" })];
  assert.equal(await admitted(byKey, 3, { apiKey: { user_id: "alice" } }), 2);
  assert.equal(await admitted(byKey, 3, { apiKey: { user_id: "bob" } }), 2);
});

const sharing: { name: string; key: string; attributes: RequestAttributes[] }[] = [
  { name: "absent", key: "jwt.sub", attributes: [{}, { jwt: {} }] },
  { name: "empty", key: "jwt.sub", attributes: [{ jwt: { sub: "" } }, {}] },
  {
    name: "no plain value",
    key: "jwt.sub",
    attributes: [{ jwt: { sub: ["a"] } }, { jwt: { sub: { a: 1 } } }, { jwt: { sub: null } }],
  },
  { name: "an evaluation error", key: "jwt.sub + 1", attributes: [{ jwt: { sub: "a" } }, { jwt: { sub: "b" } }] },
];
for (const { name, key, attributes } of sharing) {
  test(`requests whose key is ${name} share one bucket and are not exempt [B2] [S8-7]`, async () => {
    const env = limitEnv();
    const scopes = [compileLocal(env, { requests: 2, unit: "Hours", key })];
    let count = 0;
    for (let i = 0; i < 6; i++) count += await admitted(scopes, 1, attributes[i % attributes.length]);
    assert.equal(count, 2);
  });
}

test("a request limit whose key reads llm.* warns at load and uses the shared bucket [S8-15]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 2, unit: "Hours", key: "llm.requestModel" })];
  assert.match(env.warnings.join(), /cannot read llm/);
  let count = 0;
  for (const model of ["a", "b", "c"]) count += await admitted(scopes, 1, { llm: { requestModel: model } });
  assert.equal(count, 2);
});

test("buckets survive a reload that does not change the entry, even if entries are reordered", async () => {
  const env = limitEnv();
  const strict = { requests: 2, unit: "Hours" };
  let scopes = [compileLocal(env, strict)];
  await admitted(scopes, 2);
  env.reload(() => {
    scopes = [compileLocal(env, { requests: 50, unit: "Seconds" }, strict)];
  });
  assert.equal(await admitted(scopes, 2), 0);
  env.reload(() => {
    scopes = [compileLocal(env, { requests: 3, unit: "Hours" })];
  });
  assert.equal(await admitted(scopes, 5), 3);
  assert.equal(env.views().length, 1, "what is gone shows no view");
});

test("two identical entries have separate buckets", async () => {
  const env = limitEnv();
  const entry = { requests: 2, unit: "Hours" };
  assert.equal(await admitted([compileLocal(env, entry, entry)], 5), 2);
});

test("a key of a megabyte costs no more than any other [B2]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { requests: 1, unit: "Hours", key: "jwt.sub" })];
  const [long, other] = [`${"x".repeat(1 << 20)}a`, `${"x".repeat(1 << 20)}b`];
  assert.equal(await admitted(scopes, 2, { jwt: { sub: long } }), 1);
  assert.equal(await admitted(scopes, 2, { jwt: { sub: other } }), 1);
  for (const bucket of env.views()[0]?.buckets ?? []) assert.ok(bucket.key.length < 64);
});

test("32 concurrent clients with a slow admission never exceed the limit", async () => {
  const env = limitEnv();
  const waits: Hooks = {
    admit: { head: () => ({ take: () => undefined, giveBack: () => undefined, confirm: async () => undefined }) },
  };
  const scopes = [compileLocal(env, { requests: 100, unit: "Hours" }), waits];
  const results = await Promise.all(Array.from({ length: 32 }, () => admitted(scopes, 10)));
  assert.equal(
    results.reduce((sum, count) => sum + count, 0),
    100,
  );
});
