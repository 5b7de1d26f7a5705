import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { compileExpression } from "../../cel/expression.ts";
import { plainAttributes } from "../../cel/values/attribute-source.ts";
import type { TraceMessage } from "../../record/trace/record.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { hiddenSources, traceEvaluations } from "./traced-expression.ts";

const redaction = createRedaction(["x-tenant"]);

function evaluations(source: string, isHidden = false): { value: unknown; messages: TraceMessage[] } {
  const messages: TraceMessage[] = [];
  const exchange = anExchange({
    headers: { authorization: "Bearer s3cret", "x-tenant": "s3cret", accept: "text/html" },
    query: "access_token=s3cret",
    jwt: { sub: "ada", roles: ["dev"] },
  });
  exchange.trace = { point: (message) => messages.push(message), span: () => undefined, finish: () => undefined };
  const result = compileExpression(source, traceEvaluations(redaction, isHidden)).evaluate(exchange.celAttributes);
  return { value: result.ok ? result.value : undefined, messages };
}

const shown = [
  { source: "jwt.roles", value: ["dev"] },
  { source: '"admin" in jwt.roles', value: false },
  { source: 'request.headers["accept"]', value: "text/html" },
  { source: 'request.headers["authorization"].startsWith("Bearer")', value: true },
];
for (const { source, value } of shown) {
  test(`the trace shows what ${source} gave`, () => {
    assert.deepEqual(evaluations(source).messages, [{ type: "cel", expression: source, result: { value } }]);
  });
}

const secret = [
  'request.headers["Authorization"]',
  'request.headers["X-Tenant"]',
  "request.uri",
  "string(request.headers)",
];
for (const source of secret) {
  test(`the value of ${source} may hold a credential and is redacted, for the trace only`, () => {
    const { messages } = evaluations(source);
    assert.doesNotMatch(JSON.stringify(messages), /s3cret/);
    assert.match(JSON.stringify(messages), /redacted|failed/);
  });
}

test("the policy itself gets the real value", () => {
  assert.equal(evaluations('request.headers["authorization"]').value, "Bearer s3cret");
});

test("an expression that sets a sensitive header shows neither itself nor its value", () => {
  const { messages } = evaluations("'Bearer ' + 's3cret'", true);
  assert.deepEqual(messages, [{ type: "cel", expression: "<redacted>", result: { value: "<redacted>" } }]);
});

test("an evaluation that fails says why", () => {
  const { messages } = evaluations("jwt.email");
  assert.match(JSON.stringify(messages), /"error":"[^"]*email/);
});

test("without a trace nothing is reported and the value is the same", () => {
  const expression = compileExpression("jwt.sub", traceEvaluations(redaction, false));
  assert.deepEqual(expression.evaluate(anExchange({ jwt: { sub: "ada" } }).celAttributes), { ok: true, value: "ada" });
  assert.deepEqual(expression.evaluate(plainAttributes({ jwt: { sub: "given" } })), { ok: true, value: "given" });
});

test("hidden sources are those under the name of a sensitive header, at any depth", () => {
  const config = {
    request: { set: { Authorization: "'a'", "x-id": "'b'" }, add: { "x-tenant": "'c'" } },
    list: [{ cookie: "'d'" }],
  };
  assert.deepEqual([...hiddenSources(config, redaction)].sort(), ["'a'", "'c'", "'d'"]);
});
