import assert from "node:assert/strict";
import { test } from "node:test";
import { explainOutcome, explainRequest } from "./explain.ts";
import type { RequestRecord } from "./record.ts";

const answered: RequestRecord = {
  seq: 0,
  id: "a1",
  time: "2026-01-01T12:00:00.000Z",
  durationMs: 12.34,
  listener: "default",
  route: "tools",
  backend: "tools/backend0",
  method: "POST",
  host: "mcp.example.test",
  path: "/mcp",
  source: { address: "192.0.2.1", port: 40000 },
  status: 200,
  answeredBy: "upstream",
  end: "complete",
  responseBytes: 512,
  upstreamMs: 9.5,
  subject: "ada",
  steps: [],
};
const story = (changes: Partial<RequestRecord>): string => explainRequest({ ...answered, ...changes }).join("\n");
const step = (policy: string, verdict: "passed" | "answered" | "refused", phase: "gateway" | "route" = "route") => ({
  phase,
  policy,
  verdict,
  micros: 20,
});

test("a successful request is described from arrival to end", () => {
  assert.deepEqual(explainRequest({ ...answered, steps: [step("cors", "passed", "gateway"), step("jwt", "passed")] }), [
    "POST mcp.example.test/mcp from 192.0.2.1 as `ada` at 2026-01-01T12:00:00.000Z, on listener `default`.",
    "Route `tools` matched.",
    "Passed: cors (gateway); jwt (route).",
    "Backend `tools/backend0` responded with 200 after 9.5 ms.",
    "Finished with status 200 after 12 ms, 512 bytes.",
  ]);
});

test("the story includes what a policy in shadow mode would reject, with the reason", () => {
  const reason = 'the rule `"admin" in jwt.roles` is not true: jwt.roles is ["dev"]';
  assert.match(
    story({ steps: [step("authorization", "passed")], shadow: [{ policy: "authorization", reason }] }),
    /Passed: authorization \(route\)\.\nNot enforced \(shadow mode\): `authorization` would reject it: the rule .*\["dev"\]\.\n/,
  );
});

test("the level of each limit follows the policies", () => {
  const limits = [
    { limit: "3 requests per second", remaining: "1 of 3", resetSeconds: 1 },
    { limit: "budget team", remaining: "$4.98 of $5.00", resetSeconds: 7_200 },
  ];
  assert.match(
    story({ steps: [step("rateLimit", "passed")], limits }),
    /rateLimit \(route\)\.\nLimit `3 requests per second`: 1 of 3 left, resets in 1 s\.\nLimit `budget team`: \$4\.98 of \$5\.00 left, resets in 2 h\.\nBackend/,
  );
});

test("the attempts of a failover are listed with provider, status or error, time, and reason", () => {
  const attempts = [
    {
      target: "a.test:443",
      provider: "openai",
      model: "m",
      status: 503,
      durationMs: 12.34,
      retryReason: "status 503",
    },
    {
      target: "b.test:443",
      provider: "azure",
      status: null,
      error: "connection refused",
      durationMs: 2,
      retryReason: "connection refused",
    },
    { target: "10.0.0.1:80", status: 200, durationMs: 150 },
  ];
  const lines = explainRequest({ ...answered, attempts }).filter((line) => line.startsWith("Attempt"));
  assert.deepEqual(lines, [
    "Attempt 1: provider `openai` at `a.test:443` responded with 503 after 12 ms.",
    "Attempt 2: provider `azure` at `b.test:443` failed after 2.0 ms: connection refused.",
    "Attempt 3: `10.0.0.1:80` responded with 200 after 150 ms.",
  ]);
});

const cases: { name: string; changes: Partial<RequestRecord>; says: string }[] = [
  {
    name: "a denied request names the policy, the route and the clause",
    changes: {
      status: 403,
      answeredBy: "gateway",
      steps: [step("mcpAuthentication", "passed"), step("authorization", "refused")],
      failure: {
        code: "authorization_denied",
        source: "client",
        message: "authorization failed",
        detail: 'the rule `"admin" in jwt.roles` is not true: jwt.roles is ["dev"]',
      },
    },
    says: 'Denied by `authorization` of route `tools` (403): the rule `"admin" in jwt.roles` is not true: jwt.roles is ["dev"].',
  },
  {
    name: "a limit at the gateway names the gateway",
    changes: {
      status: 429,
      answeredBy: "gateway",
      steps: [step("rateLimit", "refused", "gateway")],
      failure: { code: "rate_limited", source: "client", message: "rate limit exceeded" },
    },
    says: "Limited by `rateLimit` of gateway `default` (429): rate limit exceeded.",
  },
  {
    name: "no route",
    changes: {
      route: null,
      backend: null,
      status: 404,
      answeredBy: "gateway",
      failure: {
        code: "route_not_found",
        source: "client",
        message: "route not found",
        detail: "nothing matches GET /x",
      },
    },
    says: "No route matched (404): nothing matches GET /x.",
  },
  {
    name: "a backend that cannot be reached is not blamed on a policy",
    changes: {
      status: 502,
      answeredBy: "gateway",
      steps: [step("cors", "passed")],
      failure: { code: "backend_unavailable", source: "upstream", message: "m", detail: "connect ECONNREFUSED" },
    },
    says: "Backend `tools/backend0` failed (`backend_unavailable`, 502): connect ECONNREFUSED.",
  },
  {
    name: "a policy that answered",
    changes: { answeredBy: "gateway", backend: null, status: 204, steps: [step("cors", "answered")] },
    says: "Policy `cors` of route `tools` answered the request (204).",
  },
  {
    name: "a backend that called no server",
    changes: { answeredBy: "gateway", upstreamMs: null },
    says: "The gateway responded with 200, and sent no request to backend `tools/backend0`.",
  },
  {
    name: "a client that left",
    changes: { end: "aborted", durationMs: 25_000 },
    says: "The client disconnected after 25.0 s, 512 bytes into the response.",
  },
  {
    name: "a response that broke off",
    changes: { end: "failed" },
    says: "The response was cut off after 12 ms and 512 bytes.",
  },
  {
    name: "an MCP call",
    changes: { mcp: { method: "tools/call", name: "search", target: "web" } },
    says: "(MCP `tools/call` of `search`)",
  },
  {
    name: "an LLM call",
    changes: { llm: { provider: "openai", model: "small", inputTokens: 10, cachedTokens: 4, outputTokens: 5 } },
    says: "Model `small` (openai): 10 tokens in, 4 of them cached, 5 out.",
  },
  {
    name: "dropped parameters",
    changes: { llm: { provider: "anthropic", model: "small", dropped: ["seed", "tools[1].type"] } },
    says: "Left out, because `anthropic` does not support it: `seed`, `tools[1].type`.",
  },
  {
    name: "a slow policy, with its time",
    changes: { steps: [{ phase: "route", policy: "jwt", verdict: "passed", micros: 45_000 }] },
    says: "Passed: jwt 45 ms (route).",
  },
];
for (const { name, changes, says } of cases) {
  test(`the story describes ${name}`, () => {
    assert.ok(story(changes).includes(says), story(changes));
  });
}

test("the story of a successful request does not mention rejections", () => {
  assert.doesNotMatch(story({}), /efused|enied|failed|Limited/);
});

const outcomes: { name: string; changes: Partial<RequestRecord>; says: string | undefined }[] = [
  { name: "nothing about a success", changes: {}, says: undefined },
  {
    name: "the backend's own error",
    changes: { status: 503 },
    says: "Backend `tools/backend0` responded with 503 after 9.5 ms. The error is the backend's: no policy rejected the request.",
  },
  {
    name: "a redirect of the backend",
    changes: { status: 302 },
    says: "Backend `tools/backend0` responded with 302 after 9.5 ms.",
  },
  {
    name: "a timeout, with its setting",
    changes: {
      status: 504,
      answeredBy: "gateway",
      failure: {
        code: "timeout",
        source: "upstream",
        message: "m",
        detail: "no response headers within 1 s (timeout.requestTimeout)",
      },
    },
    says: "Backend `tools/backend0` failed (`timeout`, 504): no response headers within 1 s (timeout.requestTimeout).",
  },
  {
    name: "a policy that answered, with the status",
    changes: { status: 418, answeredBy: "gateway", steps: [step("directResponse", "answered")] },
    says: "Policy `directResponse` of route `tools` answered the request (418).",
  },
  {
    name: "a client that left before the response",
    changes: { status: null, answeredBy: null, end: "aborted", responseBytes: 0 },
    says: "The client disconnected after 12 ms, 0 bytes into the response.",
  },
  {
    name: "a response that broke off",
    changes: { end: "failed" },
    says: "The response was cut off after 12 ms and 512 bytes.",
  },
  {
    name: "an error of an MCP server inside a response with status 200",
    changes: { mcp: { method: "tools/call", name: "search", target: "web", outcome: "tool_error" } },
    says: "Server `web` returned an error for `tools/call` of `search` (`tool_error`). The error is the server's: no policy rejected the call.",
  },
  {
    name: "an older request whose source is not recorded",
    changes: { status: 500, answeredBy: null },
    says: "The response had status 500. Its source is no longer known.",
  },
];
for (const { name, changes, says } of outcomes) {
  test(`the outcome explains ${name}`, () => {
    assert.equal(explainOutcome({ ...answered, ...changes }), says);
  });
}
