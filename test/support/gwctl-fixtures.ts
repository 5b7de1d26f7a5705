/**
 * An admin interface with fixed data, for tests of what gwctl prints.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { ADMIN_PATHS } from "../../src/admin/server/paths.ts";
import { NO_TRAFFIC, sumOfTraffic, type TrafficNumbers } from "../../src/record/trace/traffic-numbers.ts";

/** The time of `fixedTerminal`. */
export const NOW = Date.parse("2026-11-17T10:30:00Z");

const record = (seq: number, fields: object): object => ({
  seq,
  id: `7f1c20b6a94e3d5${seq}`,
  time: new Date(NOW - (10 - seq) * 3_000).toISOString(),
  durationMs: 12.3 * seq,
  listener: "default",
  route: "models",
  backend: "openai",
  method: "POST",
  host: "localhost:3000",
  path: "/v1/chat/completions",
  source: { address: "10.0.0.7", port: 50_000 },
  status: 200,
  answeredBy: "upstream",
  end: "complete",
  responseBytes: 512,
  upstreamMs: 10,
  subject: "alice@example.com",
  steps: [],
  ...fields,
});

const requests = [
  record(5, { llm: { provider: "openai", model: "gpt-4o-mini", inputTokens: 900, outputTokens: 120, cost: 0.0021 } }),
  record(4, {
    route: "tools-of-the-platform-team",
    path: "/mcp",
    mcp: { method: "tools/call", target: "github", name: "create_issue", outcome: "ok" },
  }),
  record(3, {
    id: "7b0e4a52-98a1-4b3f-a1d4-0f6c2f3f9a10",
    route: "tools-of-the-platform-team",
    path: "/mcp",
    status: 403,
    answeredBy: "gateway",
    mcp: { method: "tools/call", target: "files", name: "delete_file", outcome: "denied" },
    failure: {
      code: "authorization_denied",
      source: "client",
      message: "denied",
      detail: 'no rule allows it: mcp.tool.name != "delete_file" is false (mcpAuthorization.rules[0])',
    },
    steps: [
      { phase: "route", policy: "jwtAuth", verdict: "passed", micros: 210 },
      { phase: "route", policy: "mcpAuthorization", verdict: "refused", micros: 45 },
    ],
  }),
  record(2, {
    status: 504,
    answeredBy: "gateway",
    subject: null,
    failure: {
      code: "upstream_timeout",
      source: "upstream",
      message: "timeout",
      detail: "no response headers within 1 s (timeout.requestTimeout)",
    },
  }),
];

const story = [
  "POST /mcp on listener default was rejected with 403 after 36.9 ms.",
  'mcpAuthorization of route tools-of-the-platform-team rejected the tool call files/delete_file: no rule allows it: mcp.tool.name != "delete_file" is false.',
];

const dump = {
  version: "0.1.0",
  reload: {
    generation: 3,
    loadedAt: "2026-11-17T10:00:00Z",
    sources: ["/etc/gateway/config.yaml"],
    warnings: ['route "open" asks for no authentication'],
    needsRestart: [],
  },
  listeners: [
    { name: "default", port: 3000, protocol: "HTTP", routes: ["models", "tools-of-the-platform-team", "open"] },
  ],
  routes: [
    {
      name: "models",
      hostnames: ["llm.example.com"],
      matches: [{ path: { pathPrefix: "/v1" } }],
      policies: { apiKey: {}, rateLimit: {} },
      backends: [{ name: "models/backend0", weight: 1 }],
    },
    {
      name: "tools-of-the-platform-team",
      matches: [{ path: { exact: "/mcp" } }, { path: { exact: "/sse" } }],
      policies: { jwtAuth: {}, mcpAuthorization: {} },
      backends: [{ name: "tools/backend0", weight: 1 }],
    },
  ],
  backends: [
    {
      name: "models/backend0",
      type: "ai",
      protocol: "HTTP",
      targets: [
        { name: "fast", provider: "openai", resting: false, failures: 2, recent: { calls: 7, failed: 7 } },
        { name: "large", provider: "anthropic", resting: false, failures: 0, recent: { calls: 40, failed: 1 } },
      ],
    },
    { name: "tools/backend0", type: "mcp", protocol: "HTTP", targets: [{ name: "github" }, { name: "files" }] },
    { name: "open/backend0", type: "host", protocol: "HTTP", host: "10.0.0.9:8080" },
  ],
  policies: [
    { kind: "rateLimit", target: { route: "models" }, policy: { local: [{ requests: 100, unit: "MINUTES" }] } },
    { kind: "mcpAuthorization", target: { route: "tools" }, policy: { rules: ['mcp.tool.name != "delete_file"'] } },
  ],
};

const tasks = {
  process: { pid: 4242, ageMs: 5_400_000, rssBytes: 98_000_000 },
  requestsInFlight: 2,
  tasks: [
    { kind: "listener", name: "default", ageMs: 5_400_000, detail: { port: 3000, connections: 14 } },
    {
      kind: "mcp backend",
      name: "tools/backend0",
      ageMs: 5_400_000,
      detail: {
        servers: [
          { target: "github", state: "up", sessions: 2 },
          {
            target: "files",
            state: "failing",
            sessions: 0,
            lastError: "exited with code 3: no API_KEY set",
            agoMs: 61_000,
            stderr: ["starting files server", "fatal: no API_KEY set"],
          },
        ],
      },
      children: [
        {
          kind: "mcp session",
          name: "3f9c02a1",
          ageMs: 723_000,
          detail: {
            owner: "key:d3734992",
            user: "alice@example.com",
            client: { name: "claude-code", version: "2.1.0" },
            idleMs: 64_000,
            pendingCalls: 0,
            calls: 57,
            errors: 3,
            protocolVersion: "2025-11-25",
            targets: [
              { target: "github", state: "up" },
              { target: "files", state: "down" },
            ],
          },
        },
        {
          kind: "mcp session",
          name: "9b77e41d",
          ageMs: 4_000,
          detail: {
            client: { name: "inspector" },
            idleMs: 0,
            pendingCalls: 1,
            calls: 1,
            errors: 0,
            protocolVersion: "2026-07-28",
            targets: [{ target: "github", state: "up" }],
          },
        },
      ],
    },
  ],
};

const budgetRow = { budget: "team", unit: "usd", per: "month", period: "2026-11", key: "research" };
const usageSums = { requests: 4_210, ok: 4_100, rejected: 80, failed: 20, aborted: 10 };
const usageTokens = { inputTokens: 1_204_000, outputTokens: 88_000, cost: 12.345678 };

const review = {
  principals: [
    { name: "alice", kind: "key", attributes: { team: "research" } },
    { name: "ci", kind: "key", attributes: { team: "build" } },
  ],
  items: [
    { kind: "route", name: "models", listener: "default", route: "models" },
    { kind: "tool", name: "files/delete_file", listener: "default", route: "tools" },
  ],
  reasons: [
    { allowed: true, code: null, policy: null, rule: null, at: null, text: "no rule denies it" },
    {
      allowed: false,
      code: "authorization_denied",
      policy: "mcpAuthorization",
      rule: 'mcp.tool.name != "delete_file"',
      at: "config.yaml:31",
      text: "no rule allows it",
    },
  ],
  results: [
    [0, 0],
    [1, 0],
  ],
  notes: [],
};

const ANSWERS: Readonly<Record<string, unknown>> = {
  [ADMIN_PATHS.configDump]: dump,
  [ADMIN_PATHS.tasks]: tasks,
  [ADMIN_PATHS.ready]: "ready",
  [ADMIN_PATHS.logging]: "current log level is info,mcp=debug\n",
  [ADMIN_PATHS.limits]: {
    rules: [
      {
        owner: "route models",
        rule: { requests: 100, unit: "MINUTES", key: "apiKey.name" },
        refusals: 7,
        bucketsInUse: 2,
        buckets: [
          { key: "alice", remaining: 0, limit: 100, resetSeconds: 33 },
          { key: "ci", remaining: 64, limit: 100, resetSeconds: 1_209_600 },
        ],
      },
    ],
  },
  [ADMIN_PATHS.budgets]: {
    budgets: [
      {
        name: "team",
        owner: "route models",
        unit: "usd",
        per: "month",
        limit: 100,
        resetSeconds: 1_209_600,
        keysInUse: 1,
        keys: [{ key: "research", spent: 81.5 }],
      },
    ],
  },
  [ADMIN_PATHS.keys]: {
    keys: [
      {
        id: "3f9c02a17be4",
        name: "alice",
        models: ["gpt-4o-mini", "claude-*"],
        budget: { cost: 20, per: "month" },
        spent: 3.25,
        expiresAt: "2027-01-31T00:00:00Z",
        metadata: { team: "research" },
      },
      { id: "9d10b7c5e2f8", name: "ci", expiresAt: "2026-01-01T00:00:00Z", expired: true, metadata: {} },
    ],
  },
  [ADMIN_PATHS.memory]: {
    process: { rssBytes: 98_000_000, peakRssBytes: 130_000_000 },
    heap: {
      usedBytes: 31_000_000,
      limitBytes: 512_000_000,
      spaces: [{ name: "old", usedBytes: 20_000_000, sizeBytes: 24_000_000 }],
    },
    external: { bytes: 4_000_000, arrayBufferBytes: 1_000_000 },
    parts: { "recent requests": { entries: 500, usedBytes: 700_000 }, sessions: { count: 2 } },
  },
  [ADMIN_PATHS.usage]: {
    by: ["team", "model"],
    rows: [{ team: "research", model: "gpt-4o-mini", ...usageSums, ...usageTokens }],
    total: { ...usageSums, ...usageTokens },
    next: null,
  },
  [ADMIN_PATHS.usageStatus]: {
    database: "sqlite",
    state: "available",
    queuedRows: 3,
    spoolBytes: 0,
    written: 120_400,
    spooled: 0,
    dropped: 0,
    stored: { rows: 120_397, oldest: "2026-10-18T00:00:00Z", newest: "2026-11-17T10:29:59Z" },
  },
  [ADMIN_PATHS.usageBudgets]: {
    compared: 4,
    differing: 1,
    queuedRows: 0,
    spoolBytes: 0,
    dropped: 2,
    accounts: [{ ...budgetRow, ledger: 81.5, history: 81.25, difference: 0.25 }],
  },
  [ADMIN_PATHS.usageDelete]: { deleted: 312 },
  [ADMIN_PATHS.cel]: {
    value: false,
    clauses: [
      { source: 'request.method == "GET" && response.code == 403', depth: 0, value: false },
      { source: 'request.method == "GET"', depth: 1, value: false },
      { source: "response.code == 403", depth: 1, error: "field not found: code" },
    ],
  },
  [ADMIN_PATHS.shadow]: {
    since: "2026-11-17T09:00:00Z",
    rules: [
      {
        route: "tools-of-the-platform-team",
        policy: "mcpAuthorization",
        rule: 'mcp.tool.name != "delete_file"',
        denied: 12,
        subjects: [
          { subject: "alice@example.com", denied: 9 },
          { subject: "bob@example.com", denied: 3 },
        ],
        others: 0,
        examples: [{ id: "7b0e4a52-98a1-4b3f-a1d4-0f6c2f3f9a10" }],
      },
    ],
  },
  [ADMIN_PATHS.mirrors]: {
    since: "2026-11-17T09:00:00Z",
    mirrors: [
      {
        route: "open",
        mirror: "10.0.0.10:8080",
        compared: 400,
        same: 398,
        slower: 12,
        backendMs: 11,
        mirrorMs: 14,
        differences: [{ difference: "status 200 → 500", requests: 2, examples: [{ id: "7f1c20b6a94e3d51" }] }],
      },
    ],
  },
  [ADMIN_PATHS.whatIf]: {
    listener: "default",
    route: "tools-of-the-platform-team",
    status: 403,
    outcome: "rejected",
    reason: { code: "authorization_denied", message: "denied", detail: "no rule allows it" },
    subject: "alice",
    policies: [
      { phase: "route", policy: "jwtAuth", verdict: "passed" },
      { phase: "route", policy: "mcpAuthorization", verdict: "refused", reason: 'mcp.tool.name != "delete_file"' },
    ],
    limits: [{ limit: "100 requests per minute", remaining: 64, resetSeconds: 33 }],
    backends: [{ name: "tools/backend0", weight: 1, chosen: true }],
    item: { kind: "tool", name: "delete_file", target: "files", visible: false },
  },
  [ADMIN_PATHS.access]: { review, problems: [] },
  [ADMIN_PATHS.mcpTools]: {
    backends: [
      {
        backend: "tools/backend0",
        targets: [
          {
            target: "github",
            tools: [
              {
                name: "create_issue",
                shown: "create_issue",
                definition: { name: "create_issue", inputSchema: { type: "object" } },
                state: "new",
                difference: [],
                suspicious: ["description: tells the model to ignore other instructions"],
              },
            ],
          },
        ],
      },
    ],
  },
  [ADMIN_PATHS.mcpConnections]: {
    connections: [
      {
        id: "3f9c2b1a7d5e8046",
        backend: "tools/backend0",
        target: "github",
        server: "https://mcp.github.example",
        user: "alice@example.com",
        connectedAt: "2026-11-01T08:00:00Z",
        expiresAt: "2026-11-17T12:00:00Z",
        renews: true,
      },
    ],
  },
  [ADMIN_PATHS.upgrade]: "the new process 4243 serves\n",
};

function traffic(requests: number, failed: number, rejected: number, tokens = 0, cost = 0): TrafficNumbers {
  return sumOfTraffic([{ ...NO_TRAFFIC, requests, failed, rejected, tokens, cost, durations: [60, requests] }]);
}

const ROWS: Readonly<Record<string, readonly (readonly [name: readonly string[], TrafficNumbers])[]>> = {
  node: [
    [["default", "tools-of-the-platform-team", "tools/backend0"], traffic(57, 3, 1)],
    [["default", "models", "models/backend0"], traffic(12, 0, 2, 48_200, 0.31)],
  ],
  tool: [[["files", "delete_file"], traffic(1, 0, 1)]],
  model: [[["gpt-5-mini"], traffic(10, 0, 0, 48_200, 0.31)]],
  user: [
    [["alice"], traffic(60, 3, 3, 48_200, 0.31)],
    [["ci"], traffic(9, 0, 0)],
  ],
  error: [
    [["tools-of-the-platform-team", "failed", "backend_unavailable"], traffic(3, 3, 0)],
    [["tools-of-the-platform-team", "rejected", "authorization_denied"], traffic(1, 0, 1)],
  ],
};

function historyOf(group: string | null): object {
  const window = { slotSeconds: 60, windowSeconds: 90, coveredSeconds: 90 };
  if (group === null) return { ...window, points: [], total: traffic(69, 3, 3, 48_200, 0.31) };
  return { ...window, rows: (ROWS[group] ?? []).map(([name, numbers]) => ({ name, ...numbers, trend: [] })) };
}

/** Resolves with the port. */
export async function openFixedAdmin(t: TestContext): Promise<number> {
  const server = createServer((req, res) => {
    const { pathname, searchParams } = new URL(req.url ?? "/", "http://localhost");
    const id = searchParams.get("id");
    const found = requests.filter((one) => (one as { id: string }).id === id).map((one) => ({ ...one, story }));
    const answer =
      pathname === ADMIN_PATHS.requests
        ? { requests: id === null ? requests : found }
        : pathname === ADMIN_PATHS.history
          ? historyOf(searchParams.get("by"))
          : pathname === ADMIN_PATHS.keys && req.method === "POST"
            ? { id: "3f9c02a17be4", key: "gw_example_key_of_alice" }
            : ANSWERS[pathname];
    res.statusCode = answer === undefined ? 404 : 200;
    res.end(typeof answer === "string" ? answer : JSON.stringify(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}
