import assert from "node:assert/strict";
import { test } from "node:test";
import type { RequestRecord } from "../../observe/trace/request-record.ts";
import { topRows, topText } from "./top-command.ts";

function record(fields: Partial<RequestRecord>): RequestRecord {
  return {
    seq: 1,
    id: "a",
    time: "2026-01-01T00:00:00.000Z",
    durationMs: 10,
    listener: "default",
    route: "r",
    backend: null,
    method: "GET",
    host: "h",
    path: "/",
    source: { address: "127.0.0.1", port: 1 },
    status: 200,
    answeredBy: "upstream",
    end: "complete",
    responseBytes: 0,
    upstreamMs: null,
    subject: null,
    steps: [],
    ...fields,
  };
}

const records = [
  record({ route: "chat", subject: "alice", llm: { model: "m", inputTokens: 5, outputTokens: 7, cost: 0.5 } }),
  record({ route: "chat", subject: "alice", llm: { model: "m" }, status: 429 }),
  record({ route: "tools", mcp: { method: "tools/call", target: "files", name: "read\u001b[2J" }, status: 502 }),
  record({ route: "tools", mcp: { method: "tools/list" } }),
  record({ route: "tools" }),
];

test("rows are counted by kind, the busiest first, with failures, rejections, tokens and cost", () => {
  const looks = [{ atMs: 0, weight: 2, records }];
  const [tools, chat] = topRows(looks, "route", 2_000);
  assert.deepEqual([tools?.name, tools?.requests, tools?.perSecond], ["tools", 6, 3]);
  assert.deepEqual([chat?.name, chat?.rejected, chat?.tokens, chat?.cost], ["chat", 0.5, 24, 1]);
  assert.deepEqual(
    topRows(looks, "tool", 2_000).map(({ name, failed }) => [name, failed]),
    [["files/read\u001b[2J", 1]],
  );
  assert.deepEqual(
    topRows(looks, "model", 2_000).map(({ name }) => name),
    ["m"],
  );
  assert.deepEqual(
    topRows(looks, "key", 2_000).map(({ name, requests }) => [name, requests]),
    [["alice", 4]],
  );
});

test("the screen has no control characters from traffic, and reports omitted rows", () => {
  const many = Array.from({ length: 9 }, (_unused, i) => record({ route: `route-${i}` }));
  const text = topText(
    [{ atMs: 0, weight: 1, records: [...records, ...many] }],
    ["route", "tool"],
    1_000,
    4,
    (one) => one,
  );
  assert.ok(!text.includes("\u001b"));
  assert.match(text, /… 7 more: gwctl top --by route/);
  assert.match(text, /^ROUTE +REQ\/S +REQUESTS/);
  assert.equal(
    topText([], ["route"], 1_000, 4, (one) => one),
    "no requests yet\n",
  );
});
