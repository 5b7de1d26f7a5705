import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, finishedRequest } from "../../test/support/exchange.ts";
import type { Exchange } from "../core/exchange.ts";
import { createTrafficHistory, HISTORY_SECONDS } from "./traffic.ts";

function start() {
  let ms = 1_000_000;
  const history = createTrafficHistory({ now: () => 1_700_000_000_000 + ms });
  const count = (status: number | undefined, durationMs = 10): void =>
    history.count(finishedRequest(anExchange({}), { status, end: "complete", responseBytes: 0 } as never, durationMs));
  return { history, count, pass: (seconds: number) => (ms += seconds * 1000) };
}

test("requests, failures and rejections are counted by slot, with gaps as zeros", () => {
  const { history, count, pass } = start();
  for (const status of [200, 404, 502, undefined]) count(status);
  pass(30);
  count(200);
  const { points, total, slotSeconds } = history.report(300);
  assert.equal(slotSeconds, 10);
  assert.deepEqual(
    points.slice(-4).map(({ requests }) => requests),
    [4, 0, 0, 1],
  );
  assert.deepEqual([total.requests, total.failed, total.rejected], [5, 2, 1]);
  assert.equal((points[1]?.at ?? 0) - (points[0]?.at ?? 0), 10_000);
  assert.equal(points.at(-2)?.p95Ms, null);
});

test("percentiles are within 5% of the exact value, in every window and for every node", () => {
  for (const slowest of [1, 7.4, 68, 167, 1_000, 90_000]) {
    const { history, count } = start();
    for (let i = 1; i <= 100; i++) count(200, (i * slowest) / 100);
    const node = history.rows("node", 900).rows[0];
    for (const numbers of [history.report(300).total, history.report(86_400).total, node])
      for (const [share, found] of [
        [0.5, numbers?.p50Ms],
        [0.95, numbers?.p95Ms],
        [0.99, numbers?.p99Ms],
      ] as const)
        assert.ok(Math.abs((found ?? 0) / (share * slowest) - 1) < 0.05, `${share} of ${slowest}: ${found}`);
  }
  const { history, count } = start();
  count(200, 10 ** 9);
  assert.ok((history.report(300).total.p95Ms ?? 0) < 10 ** 7);
});

test("the total and every node have the same window, which is at least the range", () => {
  const { history, count, pass } = start();
  count(200);
  for (const [seconds, longest] of [
    [60, 120],
    [900, 960],
    [3_600, 3_660],
    [86_400, 90_000],
  ] as const)
    for (let i = 0; i < 20; i++) {
      pass(7);
      const windows = [
        history.report(seconds),
        history.rows("node", seconds),
        history.reportOf("node", () => true, seconds),
      ].map(({ windowSeconds }) => windowSeconds);
      assert.equal(new Set(windows).size, 1);
      assert.ok((windows[0] ?? 0) >= seconds && (windows[0] ?? 0) <= longest, `${seconds}: ${windows[0]}`);
      assert.deepEqual(history.report(seconds).total.requests, history.rows("node", seconds).rows[0]?.requests ?? 0);
    }
});

test("a longer range is coarser, a day is the maximum, and old slots do not count as new ones", () => {
  const { history, count, pass } = start();
  count(200);
  pass(HISTORY_SECONDS * 2);
  count(500);
  const day = history.report(HISTORY_SECONDS * 10);
  assert.equal(day.slotSeconds, 300);
  assert.equal(day.points.length, 1 + Math.floor(day.windowSeconds / 300));
  assert.deepEqual([day.total.requests, day.total.failed], [1, 1]);
  assert.equal(history.report(60).total.requests, 1);
});

test("restores the statistics of an earlier process; ignores old and invalid input", () => {
  const { history, count, pass } = start();
  for (const status of [200, 404, 502]) count(status, 40);
  const packed = history.packed();
  pass(60);
  const later = createTrafficHistory({ now: () => 1_700_000_000_000 + 1_060_000 });
  later.count(finishedRequest(anExchange({}), { status: 200, end: "complete", responseBytes: 0 } as never, 40));
  later.unpack(packed);
  count(200, 40);
  assert.deepEqual(later.report(300), history.report(300));
  assert.deepEqual(later.report(86_400), history.report(86_400));
  for (const [group, seconds] of [
    ["node", 900],
    ["error", 86_400],
  ] as const) {
    const [restored, original] = [later, history].map((one) =>
      one.rows(group, seconds).rows.map(({ lastAt: _ofThisProcess, ...row }) => row),
    );
    assert.deepEqual(restored, original);
  }
  const slot = (number: string): string => `{"version":2,"total":[[[${number},1,1,1,1,1,1,1]]],"groups":[]}`;
  for (const text of [
    "",
    "{}",
    "[[[1,2]]]",
    packed.replace('"version":2', '"version":1'),
    slot('"a"'),
    slot("-1"),
    slot("9e99"),
    slot("1.5"),
  ])
    later.unpack(text);
  assert.equal(later.report(300).total.requests, 4);
  const next = createTrafficHistory({ now: () => 1_700_000_000_000 + 200_000_000 });
  next.unpack(packed);
  assert.equal(next.report(86_400).total.requests, 0);
});

test("traffic is counted by route, model, tool, key and error, with percentiles", () => {
  const { history, pass } = start();
  const finish = (changes: Partial<Exchange>, status: number, durationMs = 10): void => {
    const exchange = Object.assign(anExchange({}), changes);
    history.count(finishedRequest(exchange, { status, end: "complete", responseBytes: 0 } as never, durationMs));
  };
  const tool = { name: "read", target: "files" };
  for (let i = 0; i < 9; i++) finish({ route: "tools", attributes: { mcp: { tool } } as never }, 200);
  finish({ route: "tools", attributes: { mcp: { tool: { name: "invented", target: "files" } } } as never }, 403);
  pass(60);
  const llm = { provider: "demo", requestModel: "small", inputTokens: 3, outputTokens: 4, cost: 0.5 };
  finish({ route: "chat", attributes: { llm, apiKey: { name: "ci" } } as never }, 502, 500);

  const { rows, coveredSeconds } = history.rows("node", 900);
  assert.equal(coveredSeconds, 60);
  assert.deepEqual(
    rows.map(({ name, requests, failed, rejected, mcpCalls }) => [name[1], requests, failed, rejected, mcpCalls]),
    [
      ["tools", 10, 0, 1, 10],
      ["chat", 1, 1, 0, 0],
    ],
  );
  assert.deepEqual(rows[0]?.trend.slice(-2), [10, 0]);
  assert.deepEqual(
    history.rows("error", 900).rows.map(({ name }) => name),
    [
      ["tools", "rejected", "403"],
      ["chat", "failed", "502"],
    ],
  );
  assert.deepEqual(
    history.rows("tool", 900).rows.map(({ name }) => name),
    [
      ["files", "read"],
      ["", "(other)"],
    ],
    "a rejected call of an unknown tool adds no row of its own",
  );
  const chat = history.reportOf("node", (name) => name[1] === "chat", 900);
  assert.deepEqual([chat.total.tokens, chat.total.cost, chat.points.at(-1)?.tokens], [7, 0.5, 7]);
  assert.ok(Math.abs((chat.total.p50Ms ?? 0) - 500) < 25);
  assert.equal(history.reportOf("model", ([name]) => name === "small", 3600).total.failed, 1);
  assert.equal(history.reportOf("model", ([name]) => name === "unknown", 3600).total.requests, 0);
  assert.equal(history.rows("key", 86_400).rows[0]?.name[0], "ci");
});

test("the number of names is bounded", () => {
  const { history } = start();
  for (let i = 0; i < 700; i++)
    history.count(
      finishedRequest(
        Object.assign(anExchange({}), { route: `route-${i}` }),
        { status: 200, end: "complete", responseBytes: 0 } as never,
        1,
      ),
    );
  assert.equal(history.rows("node", 900).rows.length, 600);
  assert.equal(history.report(900).total.requests, 700);
});

test("invented names fill a group for an hour at most", () => {
  const { history, pass } = start();
  const use = (model: string): void => {
    const exchange = anExchange({});
    exchange.attributes.llm = { provider: "p", requestModel: model } as never;
    history.count(finishedRequest(exchange, { status: 200, end: "complete", responseBytes: 0 } as never, 1));
  };
  for (let i = 0; i < 10_000; i++) use(`invented-${i}`);
  use("real");
  const names = () => history.rows("model", 3_600).rows.map(({ name }) => name[0]);
  assert.equal(names().length, 101);
  assert.ok(!names().includes("real"));
  assert.ok(names().includes("(other)"));
  pass(3_700);
  use("real");
  assert.deepEqual(names(), ["real"]);
});
