import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange } from "../../test/support/exchange.ts";
import { compileExpression } from "../cel/expression.ts";
import { plainAttributes } from "../cel/values/attribute-source.ts";
import { ATTRIBUTES } from "../cel/values/attributes.ts";
import type { RequestAttributes } from "../core/request-attributes.ts";

/** Everything that policies and backends can find out; its type names what exists. */
const FACTS: Required<RequestAttributes> = {
  jwt: { iss: "i", sub: "s", aud: "a", exp: 1, "<claim>": 1 },
  apiKey: { user_id: "u", "<name>": 1 },
  extauthz: { "<name>": 1 },
  mcpGuardrails: { "<name>": 1 },
  basicAuth: { username: "u" },
  llm: {
    requestModel: "m",
    responseModel: "m",
    provider: "p",
    streaming: true,
    inputTokens: 1,
    outputTokens: 1,
    totalTokens: 2,
    cachedInputTokens: 1,
    cacheCreationInputTokens: 1,
    reasoningTokens: 1,
    cost: 0.5,
    prompt: [{ role: "user", content: "c" }],
    completion: ["c"],
  },
  mcp: {
    methodName: "tools/call",
    sessionId: "s",
    target: "t",
    tool: { name: "n", target: "t" },
    prompt: { name: "n", target: "t" },
    resource: { uri: "u", target: "t" },
  },
  a2a: { method: "message/send", taskId: "t", contextId: "c", skill: "s", agent: "a", skills: ["s"] },
  backend: { name: "b", type: "mcp", protocol: "mcp" },
};

test("every field of the reference can be read", () => {
  const exchange = anAnsweredExchange({ headers: { "<name>": "x" }, responseHeaders: { "<name>": "x" }, body: "b" });
  const call = { name: "n", target: "t", arguments: { "<name>": 1 } };
  Object.assign(exchange.attributes, FACTS, { mcp: { ...FACTS.mcp, tool: call } });
  Object.assign(exchange.source, { identity: "CN=client" });
  exchange.route = "r";
  exchange.llmRequest = { "<name>": 1 };
  if (exchange.response) exchange.response.body = Buffer.from("b");
  for (const { path } of ATTRIBUTES.flatMap(({ fields }) => fields)) {
    const source = path.replace(/\.(<\w+>)$/, '["$1"]');
    const result = compileExpression(source).evaluate(exchange.celAttributes);
    assert.ok(result.ok, `${source}: ${result.ok ? "" : result.error}`);
  }
});

test("only the attributes of an exchange compile as the input of an expression", () => {
  const exchange = anAnsweredExchange({});
  const expression = compileExpression("request.method");
  // @ts-expect-error The attributes that policies set have no request.
  assert.equal(expression.evaluate(exchange.attributes).ok, false);
  // @ts-expect-error An exchange has other names and types.
  expression.evaluate(exchange);
  // @ts-expect-error Interfaces and classes are no records.
  assert.equal(expression.evaluate(plainAttributes(exchange.attributes)).ok, false);
  assert.equal(expression.evaluate(exchange.celAttributes).ok, true);
});
