import assert from "node:assert/strict";
import { test } from "node:test";
import { callAdmin, readStream } from "../../../test/support/admin.ts";
import { anExchange, finishedRequest } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createTasks } from "../../base/tasks.ts";
import { createLimitRegistry } from "../../config/compile/limit-registry.ts";
import { HeaderList } from "../../http/headers.ts";
import { createRecentRequests } from "../../record/recent-requests.ts";
import { createRequestHistory } from "../../record/recorded-request.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { celEndpoint } from "./config.ts";
import { memoryEndpoint } from "./process.ts";
import { limitsEndpoint } from "./reports.ts";
import { requestsEndpoint } from "./requests.ts";
import { countTasks, tasksEndpoint } from "./tasks.ts";

const clock = fakeClock();

const emptyHistory = () => createRequestHistory(createRedaction());

function recentWith(...paths: string[]) {
  const recent = createRecentRequests({
    clock,
    redaction: createRedaction(),
    watcher: () => undefined,
    kept: undefined,
  });
  for (const path of paths) {
    const exchange = anExchange({
      path,
      headers: { "x-role": "dev", authorization: "Bearer s3cret" },
      jwt: { sub: "ada" },
    });
    recent.begin(exchange);
    exchange.response = { status: 200, headers: new HeaderList(), source: "upstream" };
    exchange.upstream.isCalled = true;
    recent.settled(finishedRequest(exchange, { status: 200, end: "complete", responseBytes: 3 }, 1.5));
  }
  return recent;
}

test("/debug/requests lists the last requests with the documented fields", async () => {
  const { status, json } = await callAdmin(requestsEndpoint(recentWith("/a", "/b"), emptyHistory(), clock), "limit=1");
  assert.equal(status, 200);
  const { requests, ...rest } = json() as { requests: Record<string, unknown>[] };
  assert.deepEqual(rest, { inFlight: 0, kept: 2, capacity: 500 });
  assert.deepEqual(requests, [
    {
      seq: 1,
      id: "test",
      time: "2026-01-01T00:00:00.000Z",
      durationMs: 1.5,
      listener: "default",
      route: null,
      backend: null,
      method: "GET",
      host: "gateway.test",
      path: "/b",
      source: { address: "192.0.2.1", port: 40000 },
      status: 200,
      answeredBy: "upstream",
      end: "complete",
      responseBytes: 3,
      upstreamMs: null,
      subject: "ada",
      steps: [],
    },
  ]);
});

test("?since returns later requests", async () => {
  const endpoint = requestsEndpoint(recentWith("/a", "/b"), emptyHistory(), clock);
  const after = async (since: string) =>
    ((await callAdmin(endpoint, `since=${since}`)).json().requests as unknown[]).length;
  assert.deepEqual([await after("0"), await after("1")], [1, 0]);
});

for (const query of ["limit=0", "limit=501", "limit=x", "since=-1"]) {
  test(`?${query} is rejected with the range`, async () => {
    const { status, text } = await callAdmin(requestsEndpoint(recentWith(), emptyHistory(), clock), query);
    assert.equal(status, 400);
    assert.match(text, /must be a whole number from/);
  });
}

test("an unknown parameter is rejected with the nearest one", async () => {
  const endpoint = requestsEndpoint(recentWith("/a"), emptyHistory(), clock);
  const { status, text } = await callAdmin(endpoint, "Limit=3");
  assert.equal(status, 400);
  assert.equal(text, 'unknown parameter "Limit", did you mean "limit"?\n');
  assert.match((await callAdmin(endpoint, "page=3")).text, /unknown parameter "page"; expected limit, since, before/);
});

test("?id explains one request, without its credentials", async () => {
  const endpoint = requestsEndpoint(recentWith("/a"), emptyHistory(), clock);
  const { text, json } = await callAdmin(endpoint, "id=test");
  assert.doesNotMatch(text, /s3cret/);
  const [detail] = json().requests as { story: string[]; requestState: unknown }[];
  assert.match(detail?.story[0] ?? "", /GET gateway\.test\/a from 192\.0\.2\.1 as `ada`/);
});

test("an unknown ID is 404 with the number of requests", async () => {
  const { status, text } = await callAdmin(requestsEndpoint(recentWith("/a"), emptyHistory(), clock), "id=other");
  assert.equal(status, 404);
  assert.match(text, /no request "other" among the last 10000/);
});

test("?before and ?id reach back to requests of which only the history is kept", async () => {
  const requestHistory = emptyHistory();
  for (const path of ["/one", "/two", "/three"]) {
    const exchange = anExchange({ path, headers: { authorization: "Bearer s3cret" }, jwt: { sub: "ada" } });
    Object.assign(exchange, { id: `id-${path.slice(1)}`, startedAt: clock.now() });
    exchange.steps.push({ phase: "route", policy: "authorization", verdict: "refused", micros: 5 });
    requestHistory.note(finishedRequest(exchange, { status: 403, end: "complete", responseBytes: 3 }, 1.5));
    await clock.advance(1_000);
  }
  const endpoint = requestsEndpoint(recentWith(), requestHistory, clock);
  const before = new Date(clock.now() - 1_000).toISOString();
  const list = (await callAdmin(endpoint, `before=${before}&limit=10`)).json().requests as Record<string, unknown>[];
  assert.deepEqual(
    list.map(({ path, seq, isShort, status }) => [path, seq, isShort, status]),
    [
      ["/two", -1, true, 403],
      ["/one", -1, true, 403],
    ],
  );
  const { text, json } = await callAdmin(endpoint, "id=id-two");
  assert.doesNotMatch(text, /s3cret/);
  const [detail] = json().requests as { path: string; story: string[]; steps: unknown[] }[];
  assert.equal(detail?.path, "/two");
  assert.deepEqual(detail?.steps, [{ phase: "route", policy: "authorization", verdict: "refused", micros: 0 }]);
  assert.equal((await callAdmin(endpoint, "id=two")).status, 404);
  assert.equal((await callAdmin(endpoint, "before=yesterday")).status, 400);
});

test("?follow streams summaries, to eight readers at most", async () => {
  const recent = recentWith();
  const endpoint = requestsEndpoint(recent, emptyHistory(), clock);
  const streams = [];
  for (let i = 0; i < 8; i++) streams.push(readStream((await callAdmin(endpoint, "follow=true")).response));
  assert.equal((await callAdmin(endpoint, "follow=true")).status, 429);
  const exchange = anExchange({ path: "/live" });
  recent.begin(exchange);
  recent.settled(finishedRequest(exchange, { status: 204, end: "complete", responseBytes: 0 }, 1));
  for (const stream of streams) {
    assert.match(stream.text(), /^: following\n\ndata: \{.*"path":"\/live".*\}\n\n$/);
    stream.leave();
  }
  assert.equal((await callAdmin(endpoint, "follow=true")).status, 200);
});

test("/debug/cel explains an expression over a recent request; header names in any case", async () => {
  const body = JSON.stringify({
    expression: 'request.headers["X-Role"] == "admin" && jwt.sub == "ada"',
    requestId: "test",
  });
  const { json } = await callAdmin(celEndpoint(recentWith("/a")), "", { method: "POST", body });
  const { value, clauses } = json() as { value: unknown; clauses: { source: string; value: unknown }[] };
  assert.equal(value, false);
  assert.deepEqual(
    clauses.find(({ source }) => source === 'request.headers["X-Role"]'),
    { source: 'request.headers["X-Role"]', depth: 2, value: "dev" },
  );
});

test("/debug/cel shows credentials as redacted", async () => {
  const body = JSON.stringify({ expression: 'request.headers["authorization"]', requestId: "test" });
  const { text } = await callAdmin(celEndpoint(recentWith("/a")), "", { method: "POST", body });
  assert.match(text, /<redacted>/);
  assert.doesNotMatch(text, /s3cret/);
});

test("/debug/cel also takes attributes as JSON", async () => {
  const body = JSON.stringify({ expression: "jwt.roles.size() > 1", attributes: { jwt: { roles: ["a", "b"] } } });
  assert.equal((await callAdmin(celEndpoint(recentWith()), "", { method: "POST", body })).json().value, true);
});

const badQuestions = [
  { body: "", status: 400, says: /send JSON/ },
  { body: "[]", status: 400, says: /send JSON/ },
  { body: '{"expression": 1}', status: 400, says: /send JSON/ },
  { body: '{"expression": "true", "attributes": []}', status: 400, says: /send JSON/ },
  { body: '{"expression": "true", "requestId": "none"}', status: 404, says: /no request "none"/ },
  { body: '{"expression": "1 +"}', status: 400, says: /syntax error/ },
];
for (const { body, status, says } of badQuestions) {
  test(`/debug/cel responds with ${status} to ${body === "" ? "nothing" : body}`, async () => {
    const response = await callAdmin(celEndpoint(recentWith()), "", { method: "POST", body });
    assert.equal(response.status, status);
    assert.match(response.text, says);
  });
}

test("/memory shows process, heap, external memory, and the components [S4.2-5]", async () => {
  const { json } = await callAdmin(memoryEndpoint({ requests: () => ({ kept: 3 }) }));
  const report = json() as Record<string, Record<string, unknown>>;
  assert.deepEqual(Object.keys(report), ["process", "heap", "external", "parts"]);
  for (const name of ["usedBytes", "totalBytes", "limitBytes"]) assert.equal(typeof report.heap?.[name], "number");
  assert.ok(Array.isArray(report.heap?.spaces) && report.heap.spaces.length > 3);
  assert.deepEqual(report.parts, { requests: { kept: 3 } });
});

test("/debug/tasks is a tree: requests are below their listener, processes have their memory [S4.2-8]", async () => {
  const tasks = createTasks(clock);
  tasks.start("listener", "default", () => ({ port: 3000 }));
  tasks.start("mcp backend", "b").start("child", "server", () => ({ pid: process.pid }));
  const recent = recentWith();
  recent.begin(anExchange({ path: "/slow" }));
  const { json } = await callAdmin(tasksEndpoint(tasks, recent, () => 5_000));
  const report = json() as {
    process: unknown;
    requestsInFlight: number;
    tasks: { kind: string; children?: { kind: string; name: string; detail?: Record<string, unknown> }[] }[];
  };
  assert.equal(report.requestsInFlight, 1);
  assert.deepEqual(
    report.tasks[0]?.children?.map(({ kind, name }) => `${kind} ${name}`),
    ["request GET /slow"],
  );
  const rss = report.tasks[1]?.children?.[0]?.detail?.rssBytes;
  assert.equal(typeof rss, process.platform === "linux" ? "number" : "undefined");
  assert.deepEqual(countTasks(tasks.report()), { listener: 1, "mcp backend": 1, child: 1 });
});

test("/debug/limits shows every rule; ?key finds buckets", async () => {
  const limits = createLimitRegistry();
  const bucket = (key: string) => ({ key, remaining: 1, limit: 10, resetSeconds: 5 });
  const names = ["ada", "bob"];
  // Each limiter searches its own buckets, because the report contains only some of them.
  limits.register((wanted) => [
    {
      owner: "route a",
      rule: { requests: 10 },
      bucketsInUse: 2,
      refusals: 3,
      buckets: names.filter((name) => name.includes(wanted ?? "")).map(bucket),
    },
  ]);
  const keys = async (query: string) => {
    const { rules } = (await callAdmin(limitsEndpoint(limits), query)).json() as {
      rules: { buckets: { key: string }[] }[];
    };
    return rules[0]?.buckets.map(({ key }) => key);
  };
  assert.deepEqual(await keys(""), ["ada", "bob"]);
  assert.deepEqual(await keys("key=bo"), ["bob"]);
});
