import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_TRAFFIC } from "../../record/trace/traffic-numbers.ts";
import { chosenTarget } from "../instance/target.ts";
import { paintOf } from "../terminal/terminal.ts";
import { llmProviderOf } from "../views/llm-providers.ts";
import { problemsOf } from "../views/problems.ts";
import { type StatusData, statusText } from "./status-command.ts";

const AI_TARGET = { name: "main", provider: "openAI", failures: 3, resting: true, recent: { calls: 4, failed: 3 } };
const FACTS: StatusData = {
  display: "127.0.0.1:15000",
  readiness: "not ready, pending: draining",
  dump: {
    version: "1.2.3",
    listeners: [{ name: "default", port: 3000, protocol: "HTTP", routes: ["a"] }],
    backends: [
      { name: "tools", type: "mcp", targets: [{ name: "broken" }, { name: "new" }] },
      { name: "web/backend0", type: "static", health: { failures: 2, resting: true } },
      { name: "web/backend1", type: "static", canary: { state: "withdrawn", reason: "2 of 11 requests failed" } },
      { name: "web/backend2", type: "static", health: { failures: 1, resting: false }, canary: { state: "active" } },
      { name: "models", type: "ai", targets: [AI_TARGET] },
    ],
    reload: {
      generation: 2,
      loadedAt: "2026-01-01T00:00:00.000Z",
      sources: ["config.yaml"],
      warnings: [],
      needsRestart: ["config.adminAddr"],
      refused: { problems: ["config.yaml:3:1: unknown field\u001b[2J"] },
    },
  },
  report: {
    process: { pid: 7, ageMs: 90_000, rssBytes: 1024 ** 2 },
    requestsInFlight: 1,
    tasks: [
      {
        kind: "mcp backend",
        name: "tools",
        detail: { servers: [{ target: "broken", state: "failing", sessions: 0, lastError: "exited with code 3" }] },
      },
    ],
  },
  rules: [],
  traffic: { ...NO_TRAFFIC, windowMs: 90_000, perSecond: 0 },
  errors: {
    slotSeconds: 60,
    windowSeconds: 900,
    coveredSeconds: 900,
    rows: [
      { ...NO_TRAFFIC, name: ["web", "rejected", "rate_limited"], requests: 3, trend: [] },
      { ...NO_TRAFFIC, name: ["web", "failed", "503"], requests: 1, trend: [] },
    ],
  },
};

test("problems are sentences, the most urgent first", () => {
  assert.deepEqual(
    problemsOf({ ...FACTS, tasks: FACTS.report.tasks as Record<string, unknown>[] }).map(
      ({ level, text }) => `${level}: ${text.split("\u001b")[0]}`,
    ),
    [
      "bad: The gateway is shutting down: it completes requests and accepts no new ones",
      "bad: The last reload was rejected, and the configuration before it is active: config.yaml:3:1: unknown field",
      "bad: MCP server broken failed: exited with code 3",
      "bad: LLM provider main is paused after failures (3 of 4 calls failed in the last hour)",
      "bad: Backend web/backend0 cannot be reached; its route uses the other backends",
      "bad: 1 request to web failed with status 503 in the last 15 min",
      "warn: Canary web/backend1 was withdrawn: 2 of 11 requests failed",
      "warn: 3 requests to web rejected (rate_limited) in the last 15 min",
      "warn: config.adminAddr changed: restart the gateway to apply it",
    ],
  );
});

test("a server that was never started is neither running nor failed, and nothing moves the cursor", () => {
  const text = statusText(FACTS, Date.parse("2026-01-01T00:01:00Z"), paintOf({ hasColor: false }));
  assert.match(text, /^ {2}new +not started/m);
  assert.match(text, /generation 2, loaded 1 min ago from config\.yaml; last reload rejected/);
  assert.ok(!text.includes("\u001b"));
  assert.ok(statusText(FACTS, 0, paintOf({ hasColor: true })).includes("\u001b[31mfailed\u001b[0m"));
});

test("a provider that failed once is available again after five minutes, and says so", () => {
  const target = { name: "main", failures: 1, resting: false, recent: { calls: 17, failed: 1 } };
  const failing = llmProviderOf({ ...target, lastFailureAgoMs: 60_000 });
  assert.deepEqual(
    [failing.state, failing.text],
    ["failing", "failing (1 of 17 calls failed in the last hour, the last 1 min ago)"],
  );
  const later = llmProviderOf({ ...target, lastFailureAgoMs: 720_000 });
  assert.deepEqual(
    [later.state, later.text],
    ["ok", "available (1 of 17 calls failed in the last hour, the last 12 min ago)"],
  );
});

test("a provider names the features that its server rejected", () => {
  assert.equal(
    llmProviderOf({ name: "main", lacks: ["stream_options", "developer"] }).text,
    "available; called without stream_options, developer, which the server rejected",
  );
});

test("variables select the gateway if no flag does", () => {
  const set = { GWCTL_ADMIN_PORT: "1", GWCTL_ADMIN_SOCKET: "/s", GWCTL_NAMESPACE: "prod", GWCTL_CONTEXT: "" };
  assert.deepEqual(chosenTarget(undefined, {}, set).flags, { adminPort: "1", adminSocket: "/s", namespace: "prod" });
  assert.deepEqual(chosenTarget(undefined, { adminPort: "2" }, set).flags, { adminPort: "2", namespace: "prod" });
  const cluster = { ...set, GWCTL_INSTANCE: "gateway/edge" };
  assert.equal(chosenTarget(undefined, {}, cluster).name, "gateway/edge");
  assert.equal(chosenTarget(undefined, {}, cluster).flags.adminSocket, undefined);
  assert.equal(chosenTarget(undefined, { local: true }, cluster).name, undefined);
  assert.equal(chosenTarget("pod/a", {}, cluster).name, "pod/a");
});
