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
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Facts } from "../../core/facts.ts";
import type { Hooks, Outcome } from "../../core/policy.ts";
import { rateLimit } from "./policy.ts";

function compile(env: LimitEnv, ...local: unknown[]): Hooks {
  return rateLimit.compile(rateLimit.schema.parse({ local }), env.env);
}

/** `true` for an admission, the refusal's headers otherwise. */
async function attempt(scopes: readonly Hooks[], facts: Facts = {}): Promise<true | Readonly<Record<string, string>>> {
  try {
    await request(scopes, limitExchange(facts));
    return true;
  } catch (error) {
    assert.equal((error as GatewayError).code, "rate_limited");
    assert.equal((error as GatewayError).status, 429);
    assert.equal((error as GatewayError).message, "rate limit exceeded");
    return (error as GatewayError).headers ?? {};
  }
}

async function admitted(scopes: readonly Hooks[], tries: number, facts: Facts = {}): Promise<number> {
  let count = 0;
  for (let i = 0; i < tries; i++) if ((await attempt(scopes, facts)) === true) count += 1;
  return count;
}

/** An LLM call that is answered with this usage. */
async function llmCall(scopes: readonly Hooks[], usage: Facts["llm"], outcome?: Outcome): Promise<boolean> {
  const exchange = limitExchange({ llm: { requestModel: "m", estimatedTokens: 10 } });
  try {
    await request(scopes, exchange);
  } catch (error) {
    assert.equal((error as GatewayError).code, "rate_limited");
    return false;
  }
  Object.assign(exchange.facts.llm ?? {}, usage);
  settleAll(scopes, exchange, outcome);
  return true;
}

function refusedBy(error: GatewayError): void {
  assert.equal(error.code, "rate_limited");
}

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
  test(`the configuration is refused with ${name}`, () => {
    assert.equal(rateLimit.schema.safeParse({ local }).success, false);
  });
}

test("a limit of 3 with a burst of 3 admits 6, then 3 in every second window", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 3, burst: 3, unit: "Seconds" })];
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

test("a wall clock that is set back or ahead moves no window [B6]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 1, unit: "Hours" })];
  assert.equal(await admitted(scopes, 2), 1);
  for (const byMs of [-3_600_000, 7_200_000, 7_200_000]) {
    env.setWallClock(byMs);
    assert.equal(await admitted(scopes, 1), 0);
  }
  env.advance(3_600_000);
  assert.equal(await admitted(scopes, 2), 1);
});

test("answers carry limit, remaining and reset; a refusal also retry-after", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 2, unit: "Minutes" })];
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

test("a backend's own headers of these names are replaced, and removed where no limit applied [B7]", async () => {
  const env = limitEnv();
  const spoofed = {
    "x-ratelimit-limit": "999",
    "x-ratelimit-remaining": "998",
    "x-ratelimit-reset": "0",
    "x-vendor-ratelimited": "true",
  };
  const scopes = [compile(env, { requests: 5, unit: "Seconds" })];
  const exchange = limitExchange();
  exchange.response = undefined;
  scopes[0]?.admit?.(exchange);
  assert.deepEqual((await respond(scopes, exchange, spoofed)).pairs, []);
  const limited = limitExchange();
  scopes[0]?.admit?.(limited)?.take();
  assert.equal((await respond(scopes, limited, spoofed)).get("x-ratelimit-limit"), "5");
});

test("every entry must pass, and a refusal by one costs nothing in the others", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 4, unit: "Hours" }, { requests: 2, unit: "Seconds" })];
  assert.equal(await admitted(scopes, 5), 2);
  env.advance(1000);
  assert.equal(await admitted(scopes, 5), 2);
  env.advance(1000);
  assert.equal(await admitted(scopes, 5), 0);
});

const REFUNDED: [string, (env: LimitEnv) => Hooks[]][] = [
  ["a token entry beside it", (env) => [compile(env, { requests: 9, unit: "Hours" }, { tokens: 10, unit: "Hours" })]],
  [
    "a token entry of the route, and it stands at the gateway",
    (env) => [compile(env, { requests: 9, unit: "Hours" }), compile(env, { tokens: 10, unit: "Hours" })],
  ],
  [
    "a later policy of the admission",
    (env) => {
      let calls = 0;
      const confirm = async (): Promise<void> => {
        calls += 1;
        if (calls > 1) throw new Error("the service refuses");
      };
      const service: Hooks = { admit: () => ({ take: () => undefined, giveBack: () => undefined, confirm }) };
      return [compile(env, { requests: 9, unit: "Hours" }), service];
    },
  ],
];
for (const [name, compileAll] of REFUNDED) {
  test(`a request entry gives back what it took when the request is refused by ${name}`, async () => {
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

test("gateway and route limits both apply: the refusal of one costs nothing in the other", async () => {
  const env = limitEnv("gateway default");
  const gateway = compile(env, { requests: 3, unit: "Hours" });
  const one = rateLimit.compile(rateLimit.schema.parse({ local: [{ requests: 2, unit: "Hours" }] }), {
    ...env.env,
    owner: "route one",
  });
  assert.equal(await admitted([gateway, one], 5), 2);
  assert.equal(await admitted([gateway], 5), 1, "the ceiling was charged with two, not five");
});

test("the headers show the limit with the smallest share left, on a refusal the one that refused", async () => {
  const env = limitEnv();
  const gateway = compile(env, { requests: 100, unit: "Hours" });
  const route = rateLimit.compile(rateLimit.schema.parse({ local: [{ requests: 2, unit: "Seconds" }] }), {
    ...env.env,
    owner: "route one",
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
  const scopes = [compile(env, { requests: 2, unit: "Hours", key: "jwt.sub" })];
  assert.equal(await admitted(scopes, 3, { jwt: { sub: "alice" } }), 2);
  assert.equal(await admitted(scopes, 3, { jwt: { sub: "bob" } }), 2);
  const byKey = [compile(env, { requests: 2, unit: "Hours", key: "apiKey.user_id" })];
  assert.equal(await admitted(byKey, 3, { apiKey: { user_id: "alice" } }), 2);
  assert.equal(await admitted(byKey, 3, { apiKey: { user_id: "bob" } }), 2);
});

const sharing: { name: string; key: string; facts: Facts[] }[] = [
  { name: "absent", key: "jwt.sub", facts: [{}, { jwt: {} }] },
  { name: "empty", key: "jwt.sub", facts: [{ jwt: { sub: "" } }, {}] },
  {
    name: "no plain value",
    key: "jwt.sub",
    facts: [{ jwt: { sub: ["a"] } }, { jwt: { sub: { a: 1 } } }, { jwt: { sub: null } }],
  },
  { name: "an evaluation error", key: "jwt.sub + 1", facts: [{ jwt: { sub: "a" } }, { jwt: { sub: "b" } }] },
];
for (const { name, key, facts } of sharing) {
  test(`requests whose key is ${name} share one bucket and are not exempt [B2] [S8-7]`, async () => {
    const env = limitEnv();
    const scopes = [compile(env, { requests: 2, unit: "Hours", key })];
    let count = 0;
    for (let i = 0; i < 6; i++) count += await admitted(scopes, 1, facts[i % facts.length]);
    assert.equal(count, 2);
  });
}

test("a request limit whose key reads llm.* warns at load and uses the shared bucket [S8-15]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 2, unit: "Hours", key: "llm.requestModel" })];
  assert.match(env.warnings.join(), /cannot read llm/);
  let count = 0;
  for (const model of ["a", "b", "c"]) count += await admitted(scopes, 1, { llm: { requestModel: model } });
  assert.equal(count, 2);
});

test("a token limit may be keyed by the model [S2.6-11]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 10, unit: "Hours", key: "llm.requestModel" })];
  assert.deepEqual(env.warnings, []);
  for (const [model, expected] of [
    ["a", 1],
    ["b", 1],
    ["a", 0],
  ] as const) {
    assert.equal(await admitted(scopes, 1, { llm: { requestModel: model, estimatedTokens: 10 } }), expected);
  }
});

test("a budget of 100 tokens with answers of 39 admits 3 and refuses the 4th, until the window ends", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 100, unit: "Minutes" })];
  const usage = { inputTokens: 9, outputTokens: 30, totalTokens: 39 };
  const results = [];
  for (let i = 0; i < 4; i++) results.push(await llmCall(scopes, usage));
  assert.deepEqual(results, [true, true, true, false]);
  env.advance(60_000);
  assert.equal(await llmCall(scopes, usage), true, "debt does not pass into the next window");
});

test("the call that overshoots succeeds and the next is refused [S8-21]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 50, unit: "Minutes" })];
  assert.equal(await llmCall(scopes, { inputTokens: 10, outputTokens: 5_000 }), true);
  assert.equal(await llmCall(scopes, {}), false);
});

test("a token limit does not touch requests that are no LLM calls", async () => {
  const scopes = [compile(limitEnv(), { tokens: 1, unit: "Hours" })];
  assert.equal(await admitted(scopes, 5), 5);
});

test("with reserveOutput parallel calls are admitted only while they fit with all they may write [B5]", async () => {
  for (const [reserveOutput, most] of [
    [true, 7],
    [false, 50],
  ] as const) {
    const env = limitEnv();
    const scopes = [compile(env, { tokens: 1000, unit: "Minutes", reserveOutput })];
    const calls = Array.from({ length: 50 }, () =>
      limitExchange({ llm: { requestModel: "m", estimatedTokens: 8, maxOutputTokens: 140 } }),
    );
    const passed: Exchange[] = [];
    for (const call of calls) await request(scopes, call).then(() => passed.push(call), refusedBy);
    assert.ok(passed.length <= most && passed.length >= most - 1, `${passed.length} passed`);
    for (const call of passed) {
      Object.assign(call.facts.llm ?? {}, { inputTokens: 8, outputTokens: 132, totalTokens: 140 });
      settleAll(scopes, call);
    }
    assert.equal(env.views()[0]?.buckets[0]?.remaining, Math.max(0, 1000 - passed.length * 140));
  }
});

test("a call that never fits is refused and told so; without a maximum the estimate is reserved", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 100, unit: "Minutes", reserveOutput: true })];
  const call = (maxOutputTokens: number | undefined) =>
    request(scopes, limitExchange({ llm: { estimatedTokens: 10, maxOutputTokens } }));
  await assert.rejects(call(91), (error: GatewayError) => {
    assert.match(error.detail ?? "", /may use 101 tokens .* never fits into the limit of 100 tokens per minute$/);
    return error.status === 429;
  });
  assert.deepEqual(env.views()[0]?.bucketsInUse, 0, "it took nothing");
  await call(50);
  await assert.rejects(call(50), /rate limit exceeded/);
  await call(undefined);
  assert.equal(env.views()[0]?.buckets[0]?.remaining, 30);
});

test("concurrent calls are bounded by their estimates [B5] [S8-3]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 100, unit: "Hours" })];
  assert.equal(await admitted(scopes, 50, { llm: { estimatedTokens: 30 } }), 4);
  assert.equal(
    await admitted([compile(limitEnv(), { tokens: 10, unit: "Hours" })], 50, { llm: {} }),
    10,
    "an unknown size counts one",
  );
});

const settlements: { name: string; usage: Facts["llm"]; outcome?: Outcome; remaining: number }[] = [
  { name: "input and output", usage: { inputTokens: 20, outputTokens: 15, totalTokens: 99 }, remaining: 65 },
  { name: "only a total", usage: { totalTokens: 39 }, remaining: 61 },
  { name: "zero usage, which is not missing usage", usage: { inputTokens: 0, outputTokens: 0 }, remaining: 100 },
  { name: "less than the estimate", usage: { inputTokens: 3, outputTokens: 1 }, remaining: 96 },
  { name: "nothing: the estimate stays [B3]", usage: {}, remaining: 90 },
  { name: "a negative count [B3]", usage: { totalTokens: -1e6 }, remaining: 100 },
  { name: "an absurd count [B3]", usage: { totalTokens: 1e308 }, remaining: 0 },
  { name: "no number [B3]", usage: { totalTokens: Number.NaN }, remaining: 90 },
  {
    name: "nothing because the provider refused",
    usage: {},
    outcome: { status: 401, end: "complete", responseBytes: 0 },
    remaining: 100,
  },
  {
    name: "nothing because of a timeout",
    usage: {},
    outcome: { status: 504, end: "complete", responseBytes: 0 },
    remaining: 90,
  },
  {
    name: "a partial count because the client left",
    usage: { inputTokens: 10, outputTokens: 12 },
    outcome: { status: 200, end: "aborted", responseBytes: 5 },
    remaining: 78,
  },
  {
    name: "nothing because the client left",
    usage: {},
    outcome: { status: undefined, end: "aborted", responseBytes: 0 },
    remaining: 90,
  },
];
for (const { name, usage, outcome, remaining } of settlements) {
  test(`settles ${name} [S8-3]`, async () => {
    const env = limitEnv();
    await llmCall([compile(env, { tokens: 100, unit: "Hours" })], usage, outcome);
    const left = env.views()[0]?.buckets[0]?.remaining ?? 100;
    assert.equal(left, remaining);
  });
}

test("a settlement goes to the bucket as it is in the window in which it comes", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { tokens: 100, unit: "Minutes" })];
  const exchange = limitExchange({ llm: { estimatedTokens: 10 } });
  await request(scopes, exchange);
  env.advance(60_000);
  Object.assign(exchange.facts.llm ?? {}, { inputTokens: 10, outputTokens: 40 });
  settleAll(scopes, exchange);
  assert.equal(env.views()[0]?.buckets[0]?.remaining, 60);
});

test("budgets survive a reload that does not change the entry, also when entries are moved", async () => {
  const env = limitEnv();
  const strict = { requests: 2, unit: "Hours" };
  let scopes = [compile(env, strict)];
  await admitted(scopes, 2);
  env.reload(() => {
    scopes = [compile(env, { requests: 50, unit: "Seconds" }, strict)];
  });
  assert.equal(await admitted(scopes, 2), 0);
  env.reload(() => {
    scopes = [compile(env, { requests: 3, unit: "Hours" })];
  });
  assert.equal(await admitted(scopes, 5), 3);
  assert.equal(env.views().length, 1, "what is gone shows no view");
});

test("two equal entries have a bucket each", async () => {
  const env = limitEnv();
  const entry = { requests: 2, unit: "Hours" };
  assert.equal(await admitted([compile(env, entry, entry)], 5), 2);
});

test("the view shows the fullest keys and the refusals; values from headers are not shown", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 2, unit: "Minutes", key: "jwt.sub" })];
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
  const keyed = [compile(secret, { requests: 2, unit: "Minutes", key: 'request.headers["x-api-key"]' })];
  await request(keyed, limitExchange({}, { "x-api-key": "hunter2" }));
  assert.match(secret.views()[0]?.buckets[0]?.key ?? "", /^#[0-9a-f]{12}$/);
});

test("a search finds every key, also full buckets, hidden keys and keys kept as a hash", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 2, unit: "Minutes", key: "jwt.sub" })];
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
  const keyed = [compile(secret, { requests: 2, unit: "Minutes", key: 'request.headers["x-api-key"]' })];
  await request(keyed, limitExchange({}, { "x-api-key": "hunter2" }));
  const [bucket] = secret.views("hunter2")[0]?.buckets ?? [];
  assert.match(bucket?.key ?? "", /^#[0-9a-f]{12}$/);
  assert.deepEqual(secret.views("hunter")[0]?.buckets, [], "parts of a hidden key find nothing");
});

test("a key of a megabyte costs no more than any other [B2]", async () => {
  const env = limitEnv();
  const scopes = [compile(env, { requests: 1, unit: "Hours", key: "jwt.sub" })];
  const [long, other] = [`${"x".repeat(1 << 20)}a`, `${"x".repeat(1 << 20)}b`];
  assert.equal(await admitted(scopes, 2, { jwt: { sub: long } }), 1);
  assert.equal(await admitted(scopes, 2, { jwt: { sub: other } }), 1);
  for (const bucket of env.views()[0]?.buckets ?? []) assert.ok(bucket.key.length < 64);
});

test("32 concurrent clients whose admission waits never get more than the budget", async () => {
  const env = limitEnv();
  const waits: Hooks = {
    admit: () => ({ take: () => undefined, giveBack: () => undefined, confirm: async () => undefined }),
  };
  const scopes = [compile(env, { requests: 100, unit: "Hours" }), waits];
  const results = await Promise.all(Array.from({ length: 32 }, () => admitted(scopes, 10)));
  assert.equal(
    results.reduce((sum, count) => sum + count, 0),
    100,
  );
});
