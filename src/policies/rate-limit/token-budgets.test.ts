/** Token limits: the reservation of a call and its settlement when the usage is known. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { limitEnv, limitExchange, request, settleAll } from "../../../test/support/rate-limit-service/limit-env.ts";
import { admitted, compileLocal } from "../../../test/support/rate-limit-service/local-attempts.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Hooks, Outcome } from "../../core/policy.ts";
import type { RequestAttributes } from "../../core/request-attributes.ts";

/** An LLM call whose response reports this usage. */
async function llmCall(scopes: readonly Hooks[], usage: RequestAttributes["llm"], outcome?: Outcome): Promise<boolean> {
  const exchange = limitExchange({ llm: { requestModel: "m", estimatedTokens: 10 } });
  try {
    await request(scopes, exchange);
  } catch (error) {
    assert.equal((error as GatewayError).code, "rate_limited");
    return false;
  }
  Object.assign(exchange.attributes.llm ?? {}, usage);
  settleAll(scopes, exchange, outcome);
  return true;
}

function refusedBy(error: GatewayError): void {
  assert.equal(error.code, "rate_limited");
}

test("a token limit can use the model as its key [S2.6-11]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { tokens: 10, unit: "Hours", key: "llm.requestModel" })];
  assert.deepEqual(env.warnings, []);
  for (const [model, expected] of [
    ["a", 1],
    ["b", 1],
    ["a", 0],
  ] as const) {
    assert.equal(await admitted(scopes, 1, { llm: { requestModel: model, estimatedTokens: 10 } }), expected);
  }
});

test("a limit of 100 tokens admits 3 responses of 39 and rejects the 4th until the window ends", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { tokens: 100, unit: "Minutes" })];
  const usage = { inputTokens: 9, outputTokens: 30, totalTokens: 39 };
  const results = [];
  for (let i = 0; i < 4; i++) results.push(await llmCall(scopes, usage));
  assert.deepEqual(results, [true, true, true, false]);
  env.advance(60_000);
  assert.equal(await llmCall(scopes, usage), true, "debt does not pass into the next window");
});

test("the call that exceeds the limit succeeds and the next is rejected [S8-21]", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { tokens: 50, unit: "Minutes" })];
  assert.equal(await llmCall(scopes, { inputTokens: 10, outputTokens: 5_000 }), true);
  assert.equal(await llmCall(scopes, {}), false);
});

test("a token limit does not apply to requests that are not LLM calls", async () => {
  const scopes = [compileLocal(limitEnv(), { tokens: 1, unit: "Hours" })];
  assert.equal(await admitted(scopes, 5), 5);
});

test("with reserveOutput, concurrent calls are admitted only while their maximum output fits [B5]", async () => {
  for (const [reserveOutput, most] of [
    [true, 7],
    [false, 50],
  ] as const) {
    const env = limitEnv();
    const scopes = [compileLocal(env, { tokens: 1000, unit: "Minutes", reserveOutput })];
    const calls = Array.from({ length: 50 }, () =>
      limitExchange({ llm: { requestModel: "m", estimatedTokens: 8, maxOutputTokens: 140 } }),
    );
    const passed: Exchange[] = [];
    for (const call of calls) await request(scopes, call).then(() => passed.push(call), refusedBy);
    assert.ok(passed.length <= most && passed.length >= most - 1, `${passed.length} passed`);
    for (const call of passed) {
      Object.assign(call.attributes.llm ?? {}, { inputTokens: 8, outputTokens: 132, totalTokens: 140 });
      settleAll(scopes, call);
    }
    assert.equal(env.views()[0]?.buckets[0]?.remaining, Math.max(0, 1000 - passed.length * 140));
  }
});

test("a call that can never fit is rejected with that reason; without a maximum only the estimate is reserved", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { tokens: 100, unit: "Minutes", reserveOutput: true })];
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
  const scopes = [compileLocal(env, { tokens: 100, unit: "Hours" })];
  assert.equal(await admitted(scopes, 50, { llm: { estimatedTokens: 30 } }), 4);
  assert.equal(
    await admitted([compileLocal(limitEnv(), { tokens: 10, unit: "Hours" })], 50, { llm: {} }),
    10,
    "an unknown size counts one",
  );
});

const settlements: { name: string; usage: RequestAttributes["llm"]; outcome?: Outcome; remaining: number }[] = [
  { name: "input and output", usage: { inputTokens: 20, outputTokens: 15, totalTokens: 34 }, remaining: 65 },
  { name: "a total above the sum", usage: { inputTokens: 20, outputTokens: 15, totalTokens: 99 }, remaining: 1 },
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
    await llmCall([compileLocal(env, { tokens: 100, unit: "Hours" })], usage, outcome);
    const left = env.views()[0]?.buckets[0]?.remaining ?? 100;
    assert.equal(left, remaining);
  });
}

test("a settlement applies to the bucket's current window", async () => {
  const env = limitEnv();
  const scopes = [compileLocal(env, { tokens: 100, unit: "Minutes" })];
  const exchange = limitExchange({ llm: { estimatedTokens: 10 } });
  await request(scopes, exchange);
  env.advance(60_000);
  Object.assign(exchange.attributes.llm ?? {}, { inputTokens: 10, outputTokens: 40 });
  settleAll(scopes, exchange);
  assert.equal(env.views()[0]?.buckets[0]?.remaining, 60);
});
