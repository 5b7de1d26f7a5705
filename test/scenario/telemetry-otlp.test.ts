import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startRecordingServer } from "../support/mcp/recording-server.ts";
import { type OtlpCollector, type Span, startCollector } from "../support/otlp/collector.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

async function setUp(t: TestContext, otlp: (collector: OtlpCollector) => object, routes = "", random?: () => number) {
  const collector = await startCollector();
  t.after(() => collector.close());
  const seen: NodeJS.Dict<string | string[]>[] = [];
  const backend = await startBackend((req, res) => {
    seen.push(req.headers);
    if (req.url?.startsWith("/broken")) req.socket.destroy();
    else res.end("ok");
  });
  t.after(() => backend.close());
  const gateway = await startGateway(
    `
config: { telemetry: { otlp: ${JSON.stringify(otlp(collector))} } }
gateways: { default: { port: 0 } }
routes:
  - name: plain
    matches: [{ path: { pathPrefix: /plain } }, { path: { pathPrefix: /broken } }]
    backends: [{ host: "${backend.host}" }]
    policies: { requestHeaderModifier: { set: { x-seen: "yes" } } }
  - name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
${routes}`,
    random === undefined ? {} : { random },
  );
  let isOpen = true;
  /** Ends the gateway: everything that waits is exported. */
  const exported = async (): Promise<Span[]> => {
    if (isOpen) await gateway.close();
    isOpen = false;
    return collector.spans();
  };
  t.after(() => (isOpen ? gateway.close() : undefined));
  return { collector, gateway, seen, exported };
}

const chat = (gateway: TestGateway, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ model: "demo-model", messages: [{ role: "user", content: "hello" }] }),
  }).then((response) => response.text());

const http = (collector: OtlpCollector) => ({ endpoint: collector.httpUrl });

test("a request, its policies and its attempt are spans of the client's trace, over http/protobuf", async (t) => {
  const { collector, gateway, seen, exported } = await setUp(t, (collector) => ({
    endpoint: collector.httpUrl,
    headers: { "x-collector-key": "k-123" },
    resource: { "service.name": "edge", team: "platform" },
  }));
  await fetch(`${gateway.url()}/plain/a?api_key=very-secret-key&b=1`, {
    headers: {
      traceparent: `00-${TRACE}-${PARENT}-01`,
      tracestate: "vendor=1",
      authorization: "Bearer very-secret-token",
    },
  }).then((response) => response.text());
  const spans = await exported();
  const request = spans.find(({ kind }) => kind === "SERVER");
  const attempt = spans.find(({ kind }) => kind === "CLIENT");
  const policies = spans.find(({ kind }) => kind === "INTERNAL");
  assert.ok(request && attempt && policies);
  assert.equal(spans.length, 3);
  assert.ok(spans.every(({ traceId }) => traceId === TRACE));
  assert.equal(request.parentSpanId, PARENT);
  assert.equal(request.traceState, "vendor=1");
  assert.equal(request.name, "GET plain");
  const { "http.response.status_code": status, "url.path": path, "url.query": query } = request.attributes;
  assert.deepEqual([status, path, query], [200, "/plain/a", "api_key=<redacted>&b=1"]);
  assert.equal(attempt.parentSpanId, request.spanId);
  assert.equal(attempt.attributes["http.response.status_code"], 200);
  assert.equal(policies.name, "route policies");
  assert.deepEqual(policies.attributes["gateway.policies"], ["requestHeaderModifier"]);
  assert.deepEqual(
    [seen[0]?.traceparent, seen[0]?.tracestate],
    [`00-${TRACE}-${attempt.spanId}-01`, "vendor=1"],
    "the backend hangs its spans on the attempt",
  );
  assert.deepEqual([collector.resource()["service.name"], collector.resource().team], ["edge", "platform"]);
  assert.ok(collector.received.every(({ headers }) => headers["x-collector-key"] === "k-123"));
  assert.ok(!JSON.stringify(collector.received.map(({ message }) => message)).includes("very-secret"));
});

test("over gRPC, with an LLM call by the conventions for generative AI", async (t) => {
  const { collector, gateway, exported } = await setUp(t, (collector) => ({
    endpoint: collector.grpcUrl,
    protocol: "grpc",
    headers: { "x-collector-key": "k-123" },
    signals: ["traces", "metrics", "logs"],
  }));
  await chat(gateway);
  const spans = await exported();
  const call = spans.find(({ name }) => name === "chat demo-model");
  const request = spans.find(({ kind }) => kind === "SERVER");
  assert.ok(call && request);
  assert.equal(call.kind, "CLIENT");
  assert.equal(call.parentSpanId, request.spanId);
  assert.equal(call.attributes["gen_ai.operation.name"], "chat");
  assert.equal(call.attributes["gen_ai.request.model"], "demo-model");
  assert.equal(typeof call.attributes["gen_ai.usage.input_tokens"], "number");
  const [record] = collector.logs();
  assert.equal(record?.body, "request");
  assert.equal(record?.traceId, request.traceId);
  assert.equal(record?.attributes.status, 200);
  const requests = collector.metrics().get("gateway_requests_total");
  assert.equal(requests?.sum.isMonotonic, true);
  assert.equal(requests?.sum.dataPoints[0].asDouble, 1);
  assert.ok(collector.metrics().get("gateway_request_duration_seconds")?.histogram.dataPoints[0].count === "1");
  assert.ok(collector.received.every(({ headers }) => headers["x-collector-key"] === "k-123"));
});

test("one span per request where only that is asked for; it says what the call was", async (t) => {
  const { gateway, seen, exported } = await setUp(t, (collector) => ({ ...http(collector), spans: "request" }));
  await chat(gateway);
  await fetch(`${gateway.url()}/plain`).then((response) => response.text());
  const spans = await exported();
  assert.deepEqual(
    spans.map(({ kind, name }) => [kind, name]),
    [
      ["SERVER", "POST models"],
      ["SERVER", "GET plain"],
    ],
  );
  assert.equal(spans[0]?.attributes["gen_ai.request.model"], "demo-model");
  assert.equal(seen[0]?.traceparent, `00-${spans[1]?.traceId}-${spans[1]?.spanId}-01`);
});

test("expressions add attributes to the request span, name it, and remove others", async (t) => {
  const { collector, gateway, exported } = await setUp(t, (collector) => ({
    ...http(collector),
    spans: "request",
    attributes: {
      "span.name": '"openai.chat"',
      "gen_ai.system": "llm.provider",
      "gen_ai.prompt": "llm.prompt",
      whole: "llm",
      "gen_ai.completion": 'llm.completion.map(c, {"role": "assistant", "content": c})',
      "gen_ai.usage.completion_tokens": "llm.outputTokens",
      "llm.is_streaming": "llm.streaming",
      tags: '["a", "b"]',
      caller: '"key " + request.headers["authorization"]',
      missing: "jwt.sub",
    },
    removeAttributes: ["user_agent.original"],
  }));
  const send = (stream: boolean) =>
    fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: "Bearer very-secret-token" },
      body: JSON.stringify({
        model: "demo-model",
        stream,
        messages: [
          { role: "system", content: "Be brief." },
          {
            role: "user",
            content: [
              { type: "text", text: "hello " },
              { type: "text", text: "there" },
            ],
          },
        ],
      }),
    }).then((response) => response.text());
  const answer = JSON.parse(await send(false));
  await send(true);
  const spans = await exported();
  assert.equal(spans.length, 2);
  for (const [i, { name, attributes }] of spans.entries()) {
    assert.equal(name, "openai.chat");
    assert.equal(attributes["gen_ai.system"], "demo");
    assert.deepEqual(
      [0, 1].map((n) => [attributes[`gen_ai.prompt.${n}.role`], attributes[`gen_ai.prompt.${n}.content`]]),
      [
        ["system", "Be brief."],
        ["user", "hello there"],
      ],
    );
    assert.equal(attributes["gen_ai.completion.0.role"], "assistant");
    assert.equal(attributes["gen_ai.completion.0.content"], answer.choices[0].message.content);
    assert.equal(attributes["gen_ai.usage.completion_tokens"], attributes["gen_ai.usage.output_tokens"]);
    assert.equal(attributes["llm.is_streaming"], i === 1);
    assert.deepEqual(attributes.tags, ["a", "b"]);
    assert.equal(attributes["whole.provider"], "demo");
    assert.ok(!Object.keys(attributes).some((key) => /^whole\.(?:prompt|completion)/.test(key)));
    assert.ok(!JSON.stringify(attributes).includes("very-secret-token"));
    assert.ok(!("missing" in attributes) && !("user_agent.original" in attributes));
  }
  const [omitted] = collector.metrics().get("gateway_span_attribute_errors_total").sum.dataPoints;
  assert.equal(omitted.asDouble, 2);
});

test("MCP calls are spans, and servers find the context in _meta", async (t) => {
  const legacy = await startRecordingServer("legacy");
  t.after(() => legacy.close());
  const modern = await startRecordingServer("modern");
  t.after(() => modern.close());
  const { gateway, exported } = await setUp(
    t,
    http,
    `
  - name: legacy
    matches: [{ path: { exact: /legacy } }]
    backends: [{ mcp: { targets: [{ name: one, mcp: { url: "${legacy.url}" } }] } }]
  - name: modern
    matches: [{ path: { exact: /modern } }]
    backends: [{ mcp: { targets: [{ name: two, mcp: { url: "${modern.url}" } }] } }]
`,
  );
  const client = rawClient(`${gateway.url()}/legacy`);
  await client.initialize();
  await client.call(
    "echo",
    { big: 1 },
    { progressToken: 7, traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: "v=1" },
  );
  await modernPost(`${gateway.url()}/modern`, "tools/call", { name: "echo", arguments: {} });
  const spans = await exported();
  const calls = spans.filter(({ name }) => name === "tools/call echo");
  assert.equal(calls.length, 2);
  const [first, second] = calls;
  assert.ok(first && second);
  assert.equal(
    first.traceId,
    TRACE,
    "the client's own context in _meta is the parent where its HTTP request names none",
  );
  assert.equal(spans.find(({ spanId }) => spanId === first.parentSpanId)?.parentSpanId, PARENT);
  assert.deepEqual(
    [
      first.attributes["mcp.method.name"],
      first.attributes["gen_ai.tool.name"],
      first.attributes["gateway.mcp.outcome"],
    ],
    ["tools/call", "echo", "ok"],
  );
  const metaAt = (server: typeof legacy) =>
    JSON.parse(server.received.find(({ body }) => body.includes("tools/call"))?.body ?? "{}").params._meta;
  assert.equal(metaAt(legacy).traceparent, `00-${TRACE}-${first.spanId}-01`);
  assert.equal(metaAt(legacy).tracestate, "v=1");
  assert.equal(metaAt(modern).traceparent, `00-${second.traceId}-${second.spanId}-01`);
  assert.ok(!legacy.received.some(({ body }) => body.includes('"initialize"') && body.includes("traceparent")));
  const below = spans.filter(({ parentSpanId }) => parentSpanId === first.spanId);
  assert.ok(
    below.some(({ attributes }) => attributes["server.address"] === "127.0.0.1"),
    "each server that was asked",
  );
});

test("a request that is not sampled has no span, and its backend is told so", async (t) => {
  const { gateway, seen, exported } = await setUp(
    t,
    (collector) => ({ ...http(collector), sampling: { ratio: 0.5 } }),
    "",
    () => 0.7,
  );
  const get = (headers: Record<string, string>) =>
    fetch(`${gateway.url()}/plain`, { headers }).then((response) => response.text());
  await get({});
  await get({ traceparent: `00-${TRACE}-${PARENT}-00` });
  await get({ traceparent: "00-nonsense", tracestate: "a=1" });
  await get({ traceparent: `00-${TRACE}-${PARENT}-01` });
  const spans = await exported();
  assert.deepEqual(
    spans.filter(({ kind }) => kind === "SERVER").map(({ parentSpanId }) => parentSpanId),
    [PARENT],
    "the client's flag decides where there is one",
  );
  assert.match(String(seen[0]?.traceparent), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  assert.equal(seen[1]?.traceparent, `00-${TRACE}-${PARENT}-00`);
  assert.match(String(seen[2]?.traceparent), /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  assert.equal(seen[2]?.tracestate, undefined, "the state belongs to a trace that nobody named");
});

test("a client that is not trusted cannot force its requests to be traced", async (t) => {
  const { gateway, exported, seen } = await setUp(t, (collector) => ({
    ...http(collector),
    sampling: { ratio: 0, followClient: false },
  }));
  await fetch(`${gateway.url()}/plain`, { headers: { traceparent: `00-${TRACE}-${PARENT}-01` } }).then((r) => r.text());
  assert.deepEqual(await exported(), []);
  assert.equal(seen[0]?.traceparent, `00-${TRACE}-${PARENT}-01`);
});

test("what fails says why, and each attempt is one span", async (t) => {
  const { gateway, exported } = await setUp(t, http);
  await fetch(`${gateway.url()}/broken`).then((response) => response.text());
  const spans = await exported();
  const request = spans.find(({ kind }) => kind === "SERVER");
  const attempts = spans.filter(({ kind }) => kind === "CLIENT");
  assert.equal(request?.status.code, "STATUS_CODE_ERROR");
  assert.equal(request?.attributes["error.type"], "backend_response_invalid");
  assert.ok(attempts.length >= 1);
  assert.ok(attempts.every(({ status }) => status.code === "STATUS_CODE_ERROR"));
  assert.equal(new Set(attempts.map(({ spanId }) => spanId)).size, attempts.length);
});

test("without telemetry nothing is added to a request", async (t) => {
  const seen: NodeJS.Dict<string | string[]>[] = [];
  const backend = await startBackend((req, res) => {
    seen.push(req.headers);
    res.end("ok");
  });
  t.after(() => backend.close());
  const gateway = await startGateway(
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
  t.after(() => gateway.close());
  await fetch(gateway.url()).then((response) => response.text());
  assert.equal(seen[0]?.traceparent, undefined);
});
