import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, type ExchangeParts, finishedRequest } from "../../test/support/exchange.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { collectGarbage } from "../base/heap-pressure.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { HeaderList } from "../http/headers.ts";
import { createRecentRequests, RECENT_REQUESTS, type RecentRequestsOptions } from "./recent-requests.ts";
import { createRedaction } from "./trace/redact.ts";
import { createKeptTraces } from "./trace/trace.ts";

function recentRequests(options: Partial<RecentRequestsOptions> = {}) {
  return createRecentRequests({
    clock: fakeClock(),
    redaction: createRedaction(),
    watcher: () => undefined,
    kept: undefined,
    ...options,
  });
}

const complete: Outcome = { status: 200, end: "complete", responseBytes: 10 };

function pass(recent: ReturnType<typeof recentRequests>, parts: ExchangeParts = {}, outcome = complete): Exchange {
  const exchange = anExchange(parts);
  exchange.trace = recent.begin(exchange);
  exchange.response = { status: outcome.status ?? 0, headers: new HeaderList(), source: "upstream" };
  recent.settled(finishedRequest(exchange, outcome, 5));
  return exchange;
}

test("requests are listed newest first, up to the limit, and after a sequence number", () => {
  const recent = recentRequests();
  for (const path of ["/a", "/b", "/c"]) pass(recent, { path });
  const paths = (options: { limit: number; since?: number }) => recent.list(options).map((record) => record.path);
  assert.deepEqual(paths({ limit: 10 }), ["/c", "/b", "/a"]);
  assert.deepEqual(paths({ limit: 1 }), ["/c"]);
  assert.deepEqual(paths({ limit: 10, since: 1 }), ["/c"]);
  assert.deepEqual(paths({ limit: 10, since: 2 }), []);
});

test("keeps a bounded number and drops the oldest", () => {
  const recent = recentRequests();
  for (let i = 0; i < RECENT_REQUESTS + 10; i++) pass(recent, { path: `/${i}` });
  const all = recent.list({ limit: 10_000 });
  assert.equal(all.length, RECENT_REQUESTS);
  assert.equal(all[0]?.path, `/${RECENT_REQUESTS + 9}`);
  assert.equal(all.at(-1)?.path, "/10");
});

test("a request that takes the place of an older one shows no fields of it", () => {
  const recent = recentRequests();
  const failed: Outcome = { status: undefined, end: "failed", responseBytes: 3 };
  for (let i = 0; i < RECENT_REQUESTS; i++) {
    const exchange = anExchange({
      path: "/old",
      query: "api_key=old",
      headers: { "x-old": "old" },
      jwt: { sub: "old" },
      apiKey: { name: "old" },
      basicAuth: { username: "old" },
      extauthz: { old: "old" },
      mcpGuardrails: { old: "old" },
      llm: { requestModel: "old" },
      mcp: { methodName: "old" },
      a2a: { method: "old" },
      backend: { name: "old", type: "static", protocol: "http" },
    });
    exchange.route = "old";
    exchange.upstream.startedMs = 1;
    exchange.upstream.headMs = 2;
    exchange.steps.push({ phase: "route", policy: "old", verdict: "passed", micros: 1 });
    exchange.credentials.query = ["api_key"];
    exchange.failure = { code: "overloaded", source: "gateway", message: "old", detail: "old" };
    exchange.deniedInShadow("old", "old");
    recent.begin(exchange);
    recent.settled(finishedRequest(exchange, failed, 5));
  }
  const older = recent.list({ limit: 1 });
  const shown = JSON.stringify(older);
  for (let i = 0; i < RECENT_REQUESTS; i++) pass(recent);
  const alone = recentRequests();
  pass(alone);
  const first = alone.list({ limit: 1 })[0];
  assert.deepEqual(recent.list({ limit: RECENT_REQUESTS }).at(-1), { ...first, seq: RECENT_REQUESTS });
  assert.doesNotMatch(JSON.stringify(recent.find("test")), /old/);
  assert.equal(JSON.stringify(older), shown);
});

test("strings of a request do not keep the head that they were sliced from", () => {
  const recent = recentRequests();
  const headBytes = 200_000;
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let i = 0; i < RECENT_REQUESTS; i++) {
    const head = Buffer.alloc(headBytes, `/some/path/${i} query-of-request-${i} some-host-${i}.test `).toString(
      "latin1",
    );
    const [path = "", query = "", host = ""] = head.slice(0, 80).split(" ");
    pass(recent, { path, query, host });
  }
  collectGarbage();
  assert.ok(process.memoryUsage().heapUsed - before < (RECENT_REQUESTS * headBytes) / 10);
  assert.equal(recent.list({ limit: 1 })[0]?.path, `/some/path/${RECENT_REQUESTS - 1}`);
});

test("shows the client's path even if a policy rewrote it", () => {
  const recent = recentRequests();
  const exchange = anExchange({ path: "/asked" });
  recent.begin(exchange);
  exchange.request.path = "/rewritten";
  recent.settled(finishedRequest(exchange, complete, 5));
  assert.equal(recent.list({ limit: 1 })[0]?.path, "/asked");
});

test("the time of the backend is that of a server, and absent if no request was sent to one", () => {
  const recent = recentRequests();
  const upstreamMs = (isCalled: boolean): number | null | undefined => {
    const exchange = anExchange({ mcp: { methodName: "tools/call", outcome: isCalled ? "ok" : "denied" } });
    Object.assign(exchange.upstream, { startedMs: 1, headMs: 3, isCalled });
    recent.begin(exchange);
    recent.settled(finishedRequest(exchange, complete, 5));
    return recent.list({ limit: 1 })[0]?.upstreamMs;
  };
  assert.deepEqual([upstreamMs(true), upstreamMs(false)], [2, null]);
});

test("the gateway answers if the backend called no server", () => {
  const recent = recentRequests();
  const answeredBy = (source: "upstream" | "gateway", isCalled: boolean): string | null | undefined => {
    const exchange = anExchange({ mcp: { methodName: "tools/call", outcome: isCalled ? "ok" : "denied" } });
    exchange.response = { status: 200, headers: new HeaderList(), source };
    exchange.upstream.isCalled = isCalled;
    recent.begin(exchange);
    recent.settled(finishedRequest(exchange, complete, 5));
    return recent.list({ limit: 1 })[0]?.answeredBy;
  };
  assert.equal(answeredBy("upstream", true), "upstream");
  assert.equal(answeredBy("upstream", false), "gateway");
  assert.equal(answeredBy("gateway", true), "gateway");
});

test("limits and budgets are listed with what is left, and money in dollars", () => {
  const recent = recentRequests();
  const exchange = anExchange({});
  exchange.limits.readings = [
    { rule: "3 requests per second", limit: "3", remaining: 1, resetSeconds: 1, share: 1 / 3 },
  ];
  const headers = { "x-budget-name": "team", "x-budget-unit": "usd", "x-budget-remaining": "4.98" };
  exchange.limits.budgetReadings = [
    { share: 1, headers: { ...headers, "x-budget-limit": "5", "x-budget-reset": "60" } },
  ];
  recent.begin(exchange);
  recent.settled(finishedRequest(exchange, complete, 5));
  assert.deepEqual(recent.list({ limit: 1 })[0]?.limits, [
    { limit: "3 requests per second", remaining: "1 of 3", resetSeconds: 1 },
    { limit: "budget team", remaining: "$4.98 of $5.00", resetSeconds: 60 },
  ]);
});

test("subjects come from the token, the key or the user name, in that order", () => {
  const recent = recentRequests();
  const subject = (parts: ExchangeParts): string | null | undefined => {
    pass(recent, parts);
    return recent.list({ limit: 1 })[0]?.subject;
  };
  assert.equal(subject({ jwt: { sub: "ada" }, apiKey: { user_id: "key" } }), "ada");
  assert.equal(subject({ jwt: { client_id: "app" } }), "app");
  assert.equal(subject({ apiKey: { user_id: "key" } }), "key");
  assert.equal(subject({ basicAuth: { username: "bob" } }), "bob");
  assert.equal(subject({}), null);
});

test("views of a request contain no credentials", () => {
  const recent = recentRequests();
  pass(recent, {
    headers: { authorization: "Bearer s3cret", cookie: "sid=s3cret" },
    query: "api_key=s3cret",
    apiKey: { user_id: "u", key: "s3cret" },
  });
  const [detail] = recent.find("test");
  assert.ok(detail);
  assert.doesNotMatch(JSON.stringify(detail), /s3cret/);
  assert.ok(detail.story.length > 0);
});

test("the body of an LLM call is not kept", () => {
  const recent = recentRequests();
  const llm = { requestModel: "small", inputTokens: 3 };
  pass(recent, { llm });
  llm.inputTokens = 99;
  assert.deepEqual(recent.list({ limit: 1 })[0]?.llm, { model: "small", inputTokens: 3 });
});

test("followers receive each finished request until they unsubscribe", () => {
  const recent = recentRequests();
  const heard: string[] = [];
  const leave = recent.follow(({ path }) => heard.push(path));
  pass(recent, { path: "/a" });
  leave();
  pass(recent, { path: "/b" });
  assert.deepEqual(heard, ["/a"]);
});

test("requests in flight are listed with their age until they end", async () => {
  const clock = fakeClock();
  const recent = recentRequests({ clock });
  const exchange = anExchange({ path: "/slow" });
  recent.begin(exchange);
  await clock.advance(1500);
  assert.deepEqual(
    recent.inFlight(10).map(({ path, ageMs }) => ({ path, ageMs })),
    [{ path: "/slow", ageMs: 1500 }],
  );
  recent.settled(finishedRequest(exchange, complete, 1500));
  assert.deepEqual(recent.inFlight(10), []);
  assert.equal(recent.counts.inFlight, 0);
});

test("full traces are kept only of failed requests", () => {
  const recent = recentRequests({ kept: createKeptTraces(100_000) });
  pass(recent);
  assert.equal(recent.find("test")[0]?.trace, undefined);
  const bad = pass(recent, {}, { status: 502, end: "complete", responseBytes: 0 });
  assert.ok(bad.trace);
  assert.equal(recent.find("test")[0]?.trace?.at(-1)?.message.type, "requestFinished");
});

test("without a watcher and without kept traces a request has no trace at all [N8]", () => {
  const recent = recentRequests();
  assert.equal(pass(recent).trace, undefined);
});
