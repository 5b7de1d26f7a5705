/**
 * Expressions on finished requests read every attribute of the CEL reference, or fail with the reason why it is not kept.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { callAdmin } from "../../../test/support/admin.ts";
import { anAnsweredExchange, finishedRequest } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { ATTRIBUTES } from "../../cel/values/attributes.ts";
import { createRecentRequests, WITH_HEADERS } from "../../record/recent-requests.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { celEndpoint } from "./config.ts";

const PLACEHOLDERS: Readonly<Record<string, string>> = {
  "request.headers.<name>": 'request.headers["X-Role"]',
  "response.headers.<name>": 'response.headers["X-Cache"]',
  "jwt.<claim>": "jwt.roles",
  "apiKey.<name>": "apiKey.team",
  "extauthz.<name>": "extauthz.plan",
  "mcpGuardrails.<name>": "mcpGuardrails.level",
  "mcp.tool.arguments.<name>": "mcp.tool.arguments.query",
};
const NOT_KEPT: Readonly<Record<string, RegExp>> = {
  "request.body": /body: bodies are not kept after a request has ended/,
  "response.body": /body: bodies are not kept after a request has ended/,
  "llm.prompt": /field not found: prompt/,
  "llm.completion": /field not found: completion/,
  "mcp.tool.arguments.<name>": /arguments: arguments are not kept after a call has ended/,
};

function finishedRequests(count = 1, status = 200) {
  const recent = createRecentRequests({
    clock: fakeClock(),
    redaction: createRedaction(),
    watcher: () => undefined,
    kept: undefined,
  });
  for (let i = 0; i < count; i++) {
    const exchange = anAnsweredExchange({
      path: "/a",
      query: "b=1",
      body: "sent",
      headers: { "x-role": "dev", authorization: "Bearer s3cret-token" },
      status,
      responseHeaders: { "x-cache": "miss", "set-cookie": "sid=s3cret", "x-echo": "s3cret-token" },
      jwt: { iss: "idp", sub: "ada", aud: "api", exp: 1, roles: ["dev"] },
      apiKey: { user_id: "ada", team: "research" },
      basicAuth: { username: "ada" },
      extauthz: { plan: "free", password: "s3cret" },
      mcpGuardrails: { level: 3, token: "s3cret" },
      llm: {
        provider: "demo",
        requestModel: "small",
        responseModel: "small-1",
        streaming: false,
        inputTokens: 1,
        outputTokens: 2,
        totalTokens: 3,
        cachedInputTokens: 0,
        cacheCreationInputTokens: 0,
        reasoningTokens: 0,
        cost: 0.5,
        prompt: [{ role: "user", content: "hello" }],
        completion: ["hello"],
      },
      mcp: {
        methodName: "tools/call",
        sessionId: "0123456789",
        target: "files",
        tool: { name: "read", target: "files" },
        prompt: { name: "sum", target: "files" },
        resource: { uri: "file:///a", target: "files" },
      },
      a2a: { method: "message/send", taskId: "1", contextId: "2", skill: "sum", agent: "clerk", skills: ["sum"] },
      backend: { name: "main", type: "static", protocol: "http" },
    });
    Object.assign(exchange, {
      id: `request-${i}`,
      route: "main",
      source: { address: "192.0.2.1", port: 1, identity: "CN=ada" },
    });
    recent.begin(exchange);
    recent.settled(finishedRequest(exchange, { status, end: "complete", responseBytes: 3 }, 1));
  }
  return async (expression: string, asked: string | readonly string[] = `request-${count - 1}`) => {
    const body = JSON.stringify({ expression, [typeof asked === "string" ? "requestId" : "requestIds"]: asked });
    return (await callAdmin(celEndpoint(recent), "", { method: "POST", body })).json();
  };
}

const TYPES: Readonly<Record<string, string>> = {
  timestamp: "google.protobuf.Timestamp",
  dyn: ".*",
};

test("every documented attribute of a finished request can be read, with its type", async () => {
  const evaluate = finishedRequests();
  for (const { path, type } of ATTRIBUTES.flatMap(({ fields }) => fields)) {
    const read = PLACEHOLDERS[path] ?? path;
    const result = await evaluate(`type(${read})`);
    const reason = NOT_KEPT[path];
    if (reason) assert.match(String(result.error), reason, path);
    else assert.match(String(result.value), new RegExp(`^${TYPES[type] ?? type}$`), `${path}: ${result.error}`);
  }
});

test("attributes of finished requests contain no credentials", async () => {
  const evaluate = finishedRequests();
  for (const name of ["request", "response", "extauthz", "mcpGuardrails", "mcp"]) {
    const { value } = await evaluate(`toJson(${name})`);
    assert.doesNotMatch(String(value), /s3cret/, name);
  }
  assert.equal((await evaluate("extauthz.plan")).value, "free");
});

test("reading headers that are no longer kept fails with the reason", async () => {
  const evaluate = finishedRequests(WITH_HEADERS + 1);
  for (const name of ["request", "response"]) {
    assert.equal((await evaluate(`size(${name}.headers) > 0`)).value, true);
    const old = await evaluate(`${name}.headers["x-role"] == "dev"`, "request-0");
    assert.match(String(old.error), /headers of successful requests are kept only for the last 64 requests/);
  }
  const failed = finishedRequests(WITH_HEADERS + 1, 500);
  assert.equal((await failed('request.headers["x-role"]', "request-0")).value, "dev");
});

test("several requests are evaluated at once, and unknown ones are left out", async () => {
  const evaluate = finishedRequests(WITH_HEADERS + 2);
  const ask = (expression: string) => evaluate(expression, ["request-65", "unknown", "request-0"]);
  assert.deepEqual((await ask('response.code == 200 && request.path == "/a"')).results, [
    { id: "request-65", value: true },
    { id: "request-0", value: true },
  ]);
  assert.deepEqual((await ask('request.headers["x-role"] == "other"')).results, [
    { id: "request-65", value: false },
    { id: "request-0", error: "headers: headers of successful requests are kept only for the last 64 requests" },
  ]);
  assert.deepEqual((await ask("response.code")).results, [
    { id: "request-65", error: "the result is not a bool" },
    { id: "request-0", error: "the result is not a bool" },
  ]);
  assert.match(String((await ask("response.")).error), /syntax error/);
});
