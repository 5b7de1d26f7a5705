/**
 * `extProc`: an external processor changes and rejects requests and responses over gRPC, with buffered and streamed
 * bodies. Without the processor, requests fail unless `failureMode` is `open`.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { type TestContext, test } from "node:test";
import {
  type ExternalProcessor,
  type ProcessorAnswer,
  pass,
  type ReceivedMessage,
  startProcessor,
} from "../support/ext-proc/service.ts";
import type { TestGateway } from "../support/gateway.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";

const setHeader = (key: string, value: string, more: object = {}) => ({
  header: { key, rawValue: Buffer.from(value) },
  ...more,
});
const changing = (kind: string, response: object): Record<string, unknown> => ({ [kind]: { response } });
const kindsOf = ({ received }: ExternalProcessor): string[] => received.map(({ kind }) => kind);

async function processorFor(t: TestContext, answer: (message: ReceivedMessage) => ProcessorAnswer = pass) {
  const processor = await startProcessor(answer);
  t.after(() => processor.close());
  return processor;
}

async function started(t: TestContext, processor: ExternalProcessor, fields = "", body?: string) {
  const received: IncomingHttpHeaders[] = [];
  const { host } = await backendFor(t, async (request, response) => {
    received.push(request.headers);
    let text = "";
    for await (const part of request) text += String(part);
    response.setHeader("x-backend", "1");
    if (request.url === "/stream") {
      response.write("one ");
      response.write("two ");
      response.end("three");
      return;
    }
    response.end(body ?? `${request.headers["x-set"] ?? "-"} ${request.headers["x-client"] ?? "-"} ${text}`);
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { extProc: { host: "${processor.host}", timeout: 30s${fields} } }
    backends: [{ host: "${host}" }]
`,
  );
  return { gateway, backend: { host, received } };
}

const post = (gateway: TestGateway, body: string, path = "/") => fetch(gateway.url() + path, { method: "POST", body });

test("the processor sees and changes the headers of requests and responses", async (t) => {
  const processor = await processorFor(t, ({ kind }) =>
    changing(kind, {
      headerMutation: {
        setHeaders: [
          setHeader(kind === "requestHeaders" ? "X-Set" : "x-processed", "yes"),
          setHeader("host", "evil.test"),
        ],
        removeHeaders: ["x-client", "x-backend", "content-length"],
      },
    }),
  );
  const { gateway, backend } = await started(t, processor);
  const response = await fetch(`${gateway.url()}/a?b=c`, { headers: { "x-client": "1", x_set: "forged" } });
  assert.equal(await response.text(), "yes - ");
  assert.deepEqual([response.headers.get("x-processed"), response.headers.get("x-backend")], ["yes", null]);
  assert.equal(backend.received[0]?.host, new URL(gateway.url()).host);
  assert.equal(backend.received[0]?.x_set, undefined);
  const [request, answered] = processor.received;
  assert.deepEqual([request?.kind, request?.endOfStream], ["requestHeaders", true]);
  assert.deepEqual(
    [":method", ":path", ":authority", ":scheme", "x-client", "host"].map((name) => request?.headers[name]),
    ["GET", "/a?b=c", new URL(gateway.url()).host, "http", "1", undefined],
  );
  assert.deepEqual([answered?.kind, answered?.headers[":status"]], ["responseHeaders", "200"]);
  await eventually("the stream is closed", () => processor.open() === 0);
});

test("buffered bodies are sent whole, and replaced", async (t) => {
  const processor = await processorFor(t, (message) =>
    message.kind.endsWith("Body")
      ? changing(message.kind, {
          headerMutation: { setHeaders: [setHeader("x-set", "body")] },
          bodyMutation: { body: Buffer.from(message.body.toUpperCase()) },
        })
      : pass(message),
  );
  const { gateway } = await started(
    t,
    processor,
    ", processingMode: { requestBody: buffered, responseBody: buffered }",
  );
  const response = await post(gateway, "hello");
  assert.equal(await response.text(), "BODY - HELLO");
  assert.equal(response.headers.get("content-length"), "12");
  assert.deepEqual(
    processor.received.map(({ kind, body, endOfStream }) => [kind, body, endOfStream]),
    [
      ["requestHeaders", "", false],
      ["requestBody", "hello", true],
      ["responseHeaders", "", false],
      ["responseBody", "body - HELLO", true],
    ],
  );
});

test("clear_body removes a body, and an unchanged body passes", async (t) => {
  const processor = await processorFor(t, ({ kind }) =>
    changing(kind, kind === "requestBody" ? { bodyMutation: { clearBody: true } } : {}),
  );
  const { gateway } = await started(
    t,
    processor,
    ", processingMode: { requestBody: buffered, responseBody: buffered }",
  );
  assert.equal(await (await post(gateway, "hello")).text(), "- - ");
});

test("streamed bodies are sent in chunks, and each chunk can be replaced", async (t) => {
  const processor = await processorFor(t, ({ kind, body, endOfStream }) => {
    const text = body.toUpperCase() + (endOfStream ? "!" : "");
    return kind.endsWith("Body") ? changing(kind, { bodyMutation: { body: Buffer.from(text) } }) : changing(kind, {});
  });
  const { gateway } = await started(
    t,
    processor,
    ", processingMode: { requestBody: streamed, responseBody: streamed }",
  );
  const response = await post(gateway, "hello");
  assert.equal(await response.text(), "- - HELLO!!");
  assert.equal(response.headers.get("content-length"), null);
  assert.equal(await (await fetch(`${gateway.url()}/stream`)).text(), "ONE TWO THREE!");
  const large = "x".repeat(3_000_000);
  assert.equal((await (await post(gateway, large)).text()).length, large.length + "- - !!".length);
});

test("HEAD and 204 have no response body to process", async (t) => {
  const processor = await processorFor(t);
  const { gateway } = await started(t, processor, ", processingMode: { responseBody: buffered }");
  const response = await fetch(gateway.url(), { method: "HEAD" });
  assert.equal(response.status, 200);
  assert.deepEqual(kindsOf(processor), ["requestHeaders", "responseHeaders"]);
  assert.equal(processor.received[1]?.endOfStream, true);
});

for (const [kind, mode] of [
  ["requestHeaders", "requestBody: none"],
  ["requestBody", "requestBody: buffered"],
  ["requestBody", "requestBody: streamed"],
  ["responseHeaders", "responseBody: none"],
  ["responseBody", "responseBody: buffered"],
] as const) {
  test(`an immediate response in response to ${kind} (${mode}) reaches the client`, async (t) => {
    const processor = await processorFor(t, (message) =>
      message.kind === kind
        ? {
            immediateResponse: {
              status: { code: 451 },
              headers: { setHeaders: [setHeader("x-why", "law"), setHeader("x-gateway-error", "fake")] },
              body: Buffer.from("blocked"),
              details: "rule 7",
            },
          }
        : pass(message),
    );
    const { gateway, backend } = await started(t, processor, `, processingMode: { ${mode} }`);
    const response = await post(gateway, "hello");
    assert.deepEqual([response.status, await response.text()], [451, "blocked"]);
    assert.deepEqual([response.headers.get("x-why"), response.headers.get("x-gateway-error")], ["law", null]);
    assert.equal(response.headers.get("x-backend"), null);
    if (mode !== "requestBody: streamed") assert.equal(backend.received.length, kind.startsWith("request") ? 0 : 1);
  });
}

test("an immediate response while the response is sent cuts it off", async (t) => {
  const processor = await processorFor(t, (message) =>
    message.kind === "responseBody" && message.body.includes("two")
      ? { immediateResponse: { status: { code: 403 } } }
      : pass(message),
  );
  const { gateway } = await started(t, processor, ", processingMode: { responseBody: streamed }");
  await assert.rejects(fetch(`${gateway.url()}/stream`).then((response) => response.text()));
});

test("CONTINUE_AND_REPLACE replaces the body without reading it, and :status changes the status", async (t) => {
  const processor = await processorFor(t, ({ kind }) => {
    const body = Buffer.from(kind === "requestHeaders" ? "other" : "replaced");
    const headerMutation = kind === "responseHeaders" ? { setHeaders: [setHeader(":status", "202")] } : {};
    return changing(kind, { status: 1, bodyMutation: { body }, headerMutation });
  });
  const { gateway, backend } = await started(t, processor, ", processingMode: { requestBody: buffered }");
  const response = await post(gateway, "hello");
  assert.deepEqual([response.status, await response.text()], [202, "replaced"]);
  assert.equal(backend.received[0]?.["content-length"], "5");
  assert.deepEqual(kindsOf(processor), ["requestHeaders", "responseHeaders"]);
});

const failures: [name: string, answer: (message: ReceivedMessage) => ProcessorAnswer, fields?: string][] = [
  ["does not respond", () => "never", ", timeout: 1ms"],
  ["fails", () => "error"],
  ["closes the stream without a response", () => "close"],
  ["responds to another message", () => ({ responseHeaders: { response: {} } })],
  [
    "sends an unknown append action",
    ({ kind }) => changing(kind, { headerMutation: { setHeaders: [setHeader("a", "b", { appendAction: 9 })] } }),
  ],
  [
    "changes too many headers",
    ({ kind }) => changing(kind, { headerMutation: { setHeaders: Array(101).fill(setHeader("a", "b")) } }),
  ],
  ["sends an invalid status", () => ({ immediateResponse: { status: { code: 101 } } })],
  ["sends trailers", ({ kind }) => changing(kind, { trailers: {} })],
  [
    "streams a body mutation",
    ({ kind }) => changing(kind, { bodyMutation: { streamedResponse: { body: Buffer.from("x") } } }),
  ],
  [
    "overrides the mode without permission",
    ({ kind }) => ({ ...changing(kind, {}), modeOverride: { requestBodyMode: 2 } }),
  ],
  [
    "overrides to a mode that is not supported",
    ({ kind }) => ({ ...changing(kind, {}), modeOverride: { requestBodyMode: 3 } }),
    ", allowModeOverride: true",
  ],
];

for (const [name, answer, fields = ""] of failures) {
  test(`a processor that ${name} closes the route, or is skipped with failureMode: open`, async (t) => {
    const processor = await processorFor(t, answer);
    const closed = await started(t, processor, fields.includes("timeout") ? "" : fields);
    const timeout = fields.includes("timeout");
    const yaml = (mode: string): string => `gateways: { default: { port: 0 } }
routes:
  - policies: { extProc: { host: "${processor.host}", failureMode: ${mode}, timeout: ${timeout ? "1ms" : "30s"}${timeout ? "" : fields} } }
    backends: [{ host: "${closed.backend.host}" }]
`;
    const strict = await gatewayFor(t, yaml("closed"));
    const rejected = await fetch(strict.url());
    assert.deepEqual([rejected.status, rejected.headers.get("x-gateway-error")], [503, "not_ready"]);
    assert.match(await rejected.text(), /the external processor is not available/);
    assert.equal(closed.backend.received.length, 0);
    const open = await gatewayFor(t, yaml("open"));
    assert.equal((await fetch(open.url())).status, 200);
    assert.match(await open.logged("the external processor did not respond"), /failureMode=open/);
  });
}

test("a processor that cannot be reached closes the route", async (t) => {
  const processor = await startProcessor();
  await processor.close();
  const { gateway, backend } = await started(t, processor);
  assert.equal((await fetch(gateway.url())).status, 503);
  assert.equal(backend.received.length, 0);
});

test("a failure while a body is streamed ends the request", async (t) => {
  const answers = new Map([["requestBody", "error" as const]]);
  const processor = await processorFor(t, (message) => answers.get(message.kind) ?? pass(message));
  const { gateway } = await started(t, processor, ", processingMode: { requestBody: streamed }");
  const response = await post(gateway, "hello");
  assert.deepEqual([response.status, response.headers.get("x-gateway-error")], [503, "not_ready"]);
  const responding = await processorFor(t, (message) => (message.kind === "responseBody" ? "error" : pass(message)));
  const second = await started(t, responding, ", processingMode: { responseBody: streamed }");
  await assert.rejects(fetch(`${second.gateway.url()}/stream`).then((one) => one.text()));
});

test("with failureMode: open, a failure while a body is streamed sends the rest unchanged", async (t) => {
  const processor = await processorFor(t, (message) => (message.kind === "responseBody" ? "error" : pass(message)));
  const { gateway } = await started(
    t,
    processor,
    ", failureMode: open, processingMode: { requestBody: streamed, responseBody: streamed }",
  );
  assert.equal(await (await fetch(`${gateway.url()}/stream`)).text(), "one two three");
});

test("a processor may end the stream after a response", async (t) => {
  const processor = await processorFor(t, ({ kind }) => ({ last: changing(kind, {}) }));
  const { gateway } = await started(
    t,
    processor,
    ", processingMode: { requestBody: buffered, responseBody: buffered }",
  );
  assert.equal(await (await post(gateway, "hello")).text(), "- - hello");
  assert.equal(kindsOf(processor)[0], "requestHeaders");
});

test("a permitted override selects the bodies that the processor gets", async (t) => {
  const processor = await processorFor(t, ({ kind }) =>
    kind === "requestHeaders"
      ? { ...changing(kind, {}), modeOverride: { requestBodyMode: 2, responseHeaderMode: 2, responseBodyMode: 2 } }
      : changing(kind, {}),
  );
  const { gateway } = await started(t, processor, ", allowModeOverride: true");
  assert.equal(await (await post(gateway, "hello")).text(), "- - hello");
  assert.deepEqual(kindsOf(processor), ["requestHeaders", "requestBody", "responseBody"]);
});

test("an override that changes nothing needs no permission", async (t) => {
  const processor = await processorFor(t, ({ kind }) => ({ ...changing(kind, {}), modeOverride: {} }));
  const { gateway } = await started(t, processor);
  assert.equal((await fetch(gateway.url())).status, 200);
});

test("bodies above the limit are rejected", async (t) => {
  const processor = await processorFor(t);
  const fields = ", maxBodyBytes: 10, processingMode: { requestBody: buffered, responseBody: buffered }";
  const { gateway, backend } = await started(t, processor, fields, "x".repeat(11));
  assert.equal((await post(gateway, "x".repeat(11))).status, 413);
  assert.equal(backend.received.length, 0);
  const response = await fetch(gateway.url());
  assert.deepEqual([response.status, response.headers.get("x-gateway-error")], [502, "backend_response_invalid"]);
  assert.doesNotMatch(await response.text(), /xxxx/);
});

test("the gateway's own responses are not processed, and rejected requests reach no processor", async (t) => {
  const processor = await processorFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { authorization: { rules: ["request.path != '/no'"] }, extProc: { host: "${processor.host}", timeout: 30s } }
    backends: [{ host: "127.0.0.1:1" }]
`,
  );
  assert.equal((await fetch(`${gateway.url()}/no`)).status, 403);
  assert.deepEqual(kindsOf(processor), []);
  assert.equal((await fetch(gateway.url())).status, 502);
  assert.deepEqual(kindsOf(processor), ["requestHeaders"]);
});

test("the trace shows the changes, without their values", async (t) => {
  const processor = await processorFor(t, ({ kind }) =>
    changing(kind, { headerMutation: { setHeaders: [setHeader("x-set", "value")], removeHeaders: ["x-client"] } }),
  );
  const { gateway } = await started(t, processor);
  const tracing = await fetch(`${gateway.adminUrl}/debug/trace`);
  assert.equal((await rawRequest(gateway.port(), requestText("GET / HTTP/1.1"))).status, 200);
  const text = await tracing.text();
  assert.match(
    text,
    /"kind":"extProc","details":\{"step":"requestHeaders","set":\["x-set"\],"removed":\["x-client"\]\}/,
  );
});
