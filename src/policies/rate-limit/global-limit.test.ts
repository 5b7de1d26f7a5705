import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { eventually } from "../../../test/support/eventually.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { limitEnv, limitExchange, request, settleAll } from "../../../test/support/rate-limit-service/limit-env.ts";
import {
  type RateLimitService,
  type ServiceLimit,
  startRateLimitService,
} from "../../../test/support/rate-limit-service/service.ts";
import type { Clock } from "../../base/clock.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Hooks } from "../../core/policy.ts";
import type { RequestAttributes } from "../../core/request-attributes.ts";
import { rateLimit } from "./policy.ts";

const perUser = { entries: [{ key: "user", value: "jwt.sub" }] };
const USER_LIMIT: ServiceLimit = { entry: "user", limit: 3, unit: "MINUTE" };

async function service(t: TestContext, ...limits: ServiceLimit[]): Promise<RateLimitService> {
  const started = await startRateLimitService(limits);
  t.after(() => started.close());
  return started;
}

/** The clock stands still by default, so a busy machine does not cause timeouts. */
function compile(
  t: TestContext,
  global: Record<string, unknown>,
  local?: unknown[],
  clock: Clock = fakeClock(),
): Hooks[] {
  const env = limitEnv();
  t.after(() => env.reload(() => undefined));
  const config = rateLimit.schema.parse({
    global: { domain: "test", descriptors: [perUser], timeout: "2s", ...global },
    ...(local ? { local } : {}),
  });
  return [rateLimit.compile(config, { ...env.env, clock })];
}

async function outcome(scopes: readonly Hooks[], exchange: Exchange): Promise<GatewayError | undefined> {
  try {
    await request(scopes, exchange);
    return undefined;
  } catch (error) {
    return error as GatewayError;
  }
}

const alice: RequestAttributes = { jwt: { sub: "alice" } };

test("the service decides per descriptor, and its status becomes the response headers", async (t) => {
  const { host, calls } = await service(t, USER_LIMIT);
  const scopes = compile(t, { host });
  const headers = await request(scopes, limitExchange(alice));
  assert.equal(headers.get("x-ratelimit-limit"), "3;w=60");
  assert.equal(headers.get("x-ratelimit-remaining"), "2");
  assert.equal(headers.get("x-ratelimit-reset"), "60");
  assert.deepEqual(calls, [
    { domain: "test", descriptors: [{ entries: [{ key: "user", value: "alice" }] }], hitsAddend: 1 },
  ]);
  await request(scopes, limitExchange(alice));
  await request(scopes, limitExchange(alice));
  const refused = await outcome(scopes, limitExchange(alice));
  assert.equal(refused?.code, "rate_limited");
  assert.equal(refused?.message, "rate limit exceeded");
  assert.deepEqual(refused?.headers, {
    "x-ratelimit-limit": "3;w=60",
    "x-ratelimit-remaining": "0",
    "x-ratelimit-reset": "60",
    "retry-after": "60",
  });
  assert.equal(await outcome(scopes, limitExchange({ jwt: { sub: "bob" } })), undefined);
});

test("a 429 carries the service's headers and body; the vendor header is removed from successes", async (t) => {
  const started = await service(t);
  const scopes = compile(t, { host: started.host });
  const responseHeadersToAdd = [
    { key: "x-vendor-ratelimited", value: "true" },
    { key: "X-RateLimit-Limit", value: "10, 10;w=60" },
    { key: "x-ratelimit-remaining", value: "0" },
    { key: "x-ratelimit-reset", value: "42" },
    { key: "x-extra", value: "1" },
    { key: "content-length", value: "7" },
    { key: "bad name", value: "x" },
    { key: "x-split", value: "a\r\nb: c" },
  ];
  started.answer = () => ({ overallCode: "OVER_LIMIT", responseHeadersToAdd, rawBody: Buffer.from("slow down") });
  const refused = await outcome(scopes, limitExchange(alice));
  assert.equal(refused?.message, "slow down");
  assert.deepEqual(refused?.headers, {
    "x-ratelimit-limit": "10, 10;w=60",
    "x-ratelimit-remaining": "0",
    "x-ratelimit-reset": "42",
    "retry-after": "42",
    "x-vendor-ratelimited": "true",
    "x-extra": "1",
  });
  started.answer = () => ({
    overallCode: "OK",
    responseHeadersToAdd,
    requestHeadersToAdd: [{ key: "x-tier", value: "gold" }],
  });
  const exchange = limitExchange(alice);
  const headers = await request(scopes, exchange);
  assert.deepEqual(
    [headers.get("x-ratelimit-limit"), headers.get("x-extra"), headers.get("x-vendor-ratelimited")],
    ["10, 10;w=60", "1", undefined],
  );
  assert.equal(exchange.request.headers.get("x-tier"), "gold");
});

test("the first call's timeout starts when the client is loaded and connected", async (t) => {
  const started = await service(t, USER_LIMIT);
  // Loading the library takes longer than this timeout; the service responds at once.
  const scopes = compile(t, { host: started.host, timeout: "100ms" });
  assert.equal(await outcome(scopes, limitExchange(alice)), undefined);
});

test("a rejection without a reported limit has no limit headers", async (t) => {
  const started = await service(t);
  const scopes = compile(t, { host: started.host });
  started.answer = () => ({ overallCode: "OVER_LIMIT", statuses: [{ code: "OVER_LIMIT" }] });
  const refused = await outcome(scopes, limitExchange(alice));
  assert.equal(refused?.code, "rate_limited");
  assert.deepEqual(refused?.headers, {});
});

test("values that are empty or fail to evaluate share one limit and are not exempt", async (t) => {
  const { host, calls } = await service(t, { ...USER_LIMIT, limit: 1 });
  const scopes = compile(t, { host });
  assert.equal(await outcome(scopes, limitExchange()), undefined);
  assert.equal((await outcome(scopes, limitExchange({ jwt: { sub: "" } })))?.code, "rate_limited");
  assert.deepEqual(new Set(calls.map(({ descriptors }) => descriptors[0]?.entries[0]?.value)), new Set(["(none)"]));
});

test("a token limit makes two calls: the estimate at admission, then the difference", async (t) => {
  const { host, calls } = await service(t, { entry: "model", limit: 100, unit: "MINUTE" });
  const scopes = compile(t, {
    host,
    descriptors: [{ entries: [{ key: "model", value: "llm.requestModel" }], type: "tokens" }],
  });
  const call = async (used: number): Promise<boolean> => {
    const exchange = limitExchange({ llm: { requestModel: "m", estimatedTokens: 10 } });
    if (await outcome(scopes, exchange)) return false;
    Object.assign(exchange.attributes.llm ?? {}, { inputTokens: 9, outputTokens: used - 9 });
    const before = calls.length;
    settleAll(scopes, exchange);
    if (used > 10) while (calls.length === before) await new Promise((resolve) => setImmediate(resolve));
    return true;
  };
  assert.deepEqual([await call(39), await call(39), await call(39), await call(39)], [true, true, true, false]);
  assert.deepEqual(
    calls.map(({ hitsAddend }) => hitsAddend),
    [10, 29, 10, 29, 10, 29, 10],
  );
});

test("an estimate that was too high stays counted, because the protocol can only add", async (t) => {
  const { host, calls } = await service(t);
  const scopes = compile(t, { host, descriptors: [{ ...perUser, type: "tokens" }] });
  const exchange = limitExchange({ ...alice, llm: { estimatedTokens: 50 } });
  await request(scopes, exchange);
  Object.assign(exchange.attributes.llm ?? {}, { inputTokens: 3, outputTokens: 4 });
  settleAll(scopes, exchange);
  await request(scopes, limitExchange({ ...alice, llm: { estimatedTokens: 1 } }));
  assert.deepEqual(
    calls.map(({ hitsAddend }) => hitsAddend),
    [50, 1],
  );
});

test("a local rejection does not call the service", async (t) => {
  const { host, calls } = await service(t);
  const scopes = compile(t, { host }, [{ requests: 1, unit: "Hours" }]);
  await request(scopes, limitExchange(alice));
  assert.equal((await outcome(scopes, limitExchange(alice)))?.code, "rate_limited");
  assert.equal(calls.length, 1);
});

test("a rejection by the service refunds the local limits", async (t) => {
  const started = await service(t);
  const scopes = compile(t, { host: started.host }, [{ requests: 1, unit: "Hours" }]);
  started.answer = () => ({ overallCode: "OVER_LIMIT" });
  await outcome(scopes, limitExchange(alice));
  started.answer = undefined;
  assert.equal(await outcome(scopes, limitExchange(alice)), undefined);
});

test("the code UNKNOWN counts as OK, as in Envoy", async (t) => {
  const started = await service(t);
  const scopes = compile(t, { host: started.host });
  started.answer = () => ({ overallCode: "UNKNOWN" });
  assert.equal(await outcome(scopes, limitExchange(alice)), undefined);
});

test("the first response may take longer than the timeout, the next one may not", async (t) => {
  const started = await service(t);
  const clock = fakeClock();
  const scopes = compile(t, { host: started.host, timeout: "100ms" }, undefined, clock);
  const asked = async (ms: number): Promise<GatewayError | undefined> => {
    const before = started.calls.length;
    const result = outcome(scopes, limitExchange(alice));
    while (started.calls.length === before) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(ms);
    return result;
  };
  assert.equal(await asked(150), undefined);
  started.answer = () => "never";
  assert.equal((await asked(100))?.code, "rate_limit_unavailable");
});

const faults: { name: string; answer: NonNullable<RateLimitService["answer"]> }[] = [
  { name: "answers with an error", answer: () => "error" },
  { name: "does not answer", answer: () => "never" },
  { name: "answers with an unknown code", answer: () => ({ overallCode: 3 }) },
];
for (const { name, answer } of faults) {
  test(`a service that ${name} rejects or admits requests as configured, and is used again after it recovers [R23]`, async (t) => {
    const started = await service(t, USER_LIMIT);
    const clock = fakeClock();
    const closed = compile(t, { host: started.host, timeout: "100ms" }, undefined, clock);
    const open = compile(t, { host: started.host, timeout: "100ms", failureMode: "open" }, undefined, clock);
    const asked = async (scopes: readonly Hooks[]): Promise<GatewayError | undefined> => {
      const before = started.calls.length;
      const result = outcome(scopes, limitExchange(alice));
      while (started.calls.length === before) await new Promise((resolve) => setImmediate(resolve));
      // Only the timeout ends the wait for a service that does not respond.
      if (started.answer === answer && name === "does not answer") await clock.advance(100);
      return result;
    };
    assert.equal(await asked(closed), undefined);
    assert.equal(await asked(open), undefined);
    started.answer = answer;
    const error = await asked(closed);
    assert.deepEqual(
      [error?.code, error?.status, error?.message],
      ["rate_limit_unavailable", 500, "rate limit service unavailable"],
    );
    assert.equal(await asked(open), undefined);
    started.answer = undefined;
    assert.equal(await asked(closed), undefined);
  });
}

test("a peer that does not speak gRPC causes a failure, not a hang [R23]", async (t) => {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end("HTTP/1.1 400 Bad Request\r\n\r\n garbage");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const scopes = compile(t, { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, timeout: "500ms" });
  assert.equal((await outcome(scopes, limitExchange(alice)))?.code, "rate_limit_unavailable");
});

test("calls to a service that is down fail at once, and succeed after it returns", async (t) => {
  const first = await startRateLimitService([USER_LIMIT]);
  const scopes = compile(t, { host: first.host });
  assert.equal(await outcome(scopes, limitExchange(alice)), undefined);
  await first.close();
  assert.equal((await outcome(scopes, limitExchange(alice)))?.code, "rate_limit_unavailable");
  const second = await startRateLimitService([USER_LIMIT], first.host);
  t.after(() => second.close());
  // The client reconnects with a growing backoff; each attempt here is one request.
  await eventually("it is asked again", async () => (await outcome(scopes, limitExchange(alice))) === undefined);
});
