/**
 * Provider `custom`: servers with their own paths and key headers, for clients of every conversation format, as one
 * provider and as a shared provider of several models.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Received {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Record<string, unknown>;
}

type Respond = (received: Received, response: ServerResponse) => void;

async function server(t: TestContext, respond: Respond): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const one = { url: request.url ?? "", headers: request.headers, body: JSON.parse(text) };
      received.push(one);
      respond(one, response);
    });
  });
  return { url: `http://${host}`, received };
}

function sendJson(response: ServerResponse, value: object): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

const completion: Respond = ({ body }, response) => {
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
  if (body.stream !== true) {
    const choices = [{ index: 0, message: { role: "assistant", content: "fine" }, finish_reason: "stop" }];
    sendJson(response, { id: "1", object: "chat.completion", model: body.model, choices, usage });
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  const choices = [
    { index: 0, delta: { role: "assistant", content: "fi" } },
    { index: 0, delta: { content: "ne" }, finish_reason: "stop" },
  ];
  for (const choice of choices)
    response.write(`data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", choices: [choice] })}\n\n`);
  response.end("data: [DONE]\n\n");
};

const message: Respond = ({ url, body }, response) => {
  if (url.endsWith("/count_tokens")) sendJson(response, { input_tokens: 7 });
  else
    sendJson(response, {
      id: "m",
      type: "message",
      role: "assistant",
      model: body.model,
      content: [{ type: "text", text: "fine" }],
      stop_reason: "end_turn",
      usage: { input_tokens: 3, output_tokens: 2 },
    });
};

async function post(url: string, path: string, body: object): Promise<{ status: number; text: string }> {
  const response = await fetch(`${url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, text: await response.text() };
}

const messages = [{ role: "user", content: "hello" }];
/** A request of each conversation format. */
const REQUESTS: Readonly<Record<string, object>> = {
  "/v1/chat/completions": { model: "small", messages },
  "/v1/messages": { model: "small", max_tokens: 9, messages },
  "/v1/responses": { model: "small", input: "hello" },
  "/v1beta/models/small:generateContent": { contents: [{ role: "user", parts: [{ text: "hello" }] }] },
};

async function gatewayWith(t: TestContext, custom: object): Promise<string> {
  const route = { backends: [{ ai: { provider: { custom }, auth: { key: "own-key" } } }] };
  const gateway = await gatewayFor(t, JSON.stringify({ gateways: { default: { port: 0 } }, routes: [route] }));
  return gateway.url();
}

test("a server with chat completions at another path serves clients of every format", async (t) => {
  const { url, received } = await server(t, completion);
  const gateway = await gatewayWith(t, {
    baseUrl: `${url}/api`,
    keyHeader: "api-key",
    formats: [{ type: "completions", path: "/models/{model}/chat" }],
  });
  for (const [path, body] of Object.entries(REQUESTS)) {
    const { status, text } = await post(gateway, path, body);
    assert.equal(status, 200, `${path}: ${text}`);
    assert.match(text, /fine/, path);
  }
  for (const one of received) {
    assert.equal(one.url, "/api/models/small/chat");
    assert.deepEqual([one.headers["api-key"], one.headers.authorization], ["own-key", undefined]);
    assert.equal(one.body.model, "small");
  }
  assert.equal(received.length, 4);
  const stream = await post(gateway, "/v1/messages", { model: "small", max_tokens: 9, messages, stream: true });
  assert.match(stream.text, /"text":"fi"[\s\S]*"text":"ne"[\s\S]*message_stop/);
  assert.deepEqual(received[4]?.body.stream_options, { include_usage: true });
  const wrong = await post(gateway, "/v1/chat/completions", { model: "a/../b", messages });
  assert.deepEqual([wrong.status, received.length], [400, 5], "a model cannot change the path");
});

test("a server with the Messages API gets translated requests, and counts tokens below its path", async (t) => {
  const { url, received } = await server(t, message);
  const gateway = await gatewayWith(t, {
    baseUrl: url,
    keyHeader: "x-api-key",
    formats: [{ type: "messages", path: "/claude" }],
  });
  for (const [path, body] of Object.entries(REQUESTS))
    assert.match((await post(gateway, path, body)).text, /fine/, path);
  const counted = await post(gateway, "/v1/messages/count_tokens", { model: "small", messages });
  assert.deepEqual(JSON.parse(counted.text), { input_tokens: 7 });
  assert.deepEqual(
    received.map((one) => one.url),
    [...Object.keys(REQUESTS).map(() => "/claude"), "/claude/count_tokens"],
  );
  assert.equal(received[0]?.headers["x-api-key"], "own-key");
  assert.ok(received[0]?.headers["anthropic-version"]);
});

test("each format of the list is native, and formats outside of it are rejected", async (t) => {
  const { url, received } = await server(t, ({ url: path, body }, response) => {
    if (path === "/v1/messages") message({ url: path, headers: {}, body }, response);
    else if (path === "/v1/embeddings") sendJson(response, { object: "list", data: [], usage: { prompt_tokens: 1 } });
    else completion({ url: path, headers: {}, body }, response);
  });
  const gateway = await gatewayWith(t, {
    baseUrl: `${url}/v1`,
    formats: [{ type: "messages" }, { type: "completions" }, { type: "embeddings" }],
  });
  assert.equal((await post(gateway, "/v1/embeddings", { model: "e", input: "a" })).status, 200);
  for (const path of Object.keys(REQUESTS)) await post(gateway, path, REQUESTS[path] ?? {});
  assert.deepEqual(
    received.map((one) => one.url),
    ["/v1/embeddings", "/v1/chat/completions", "/v1/messages", "/v1/messages", "/v1/messages"],
  );
  assert.equal(received[0]?.headers.authorization, "Bearer own-key");
  const image = await post(gateway, "/v1/images/generations", { model: "i", prompt: "a" });
  assert.equal(image.status, 400);
  assert.match(image.text, /unsupported_format/);
  assert.equal(received.length, 5);
});

test("models share a custom provider of `providers`", async (t) => {
  const { url, received } = await server(t, completion);
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      llm: {
        port: 0,
        providers: [
          {
            name: "internal",
            provider: {
              custom: { baseUrl: url, name: "internal", formats: [{ type: "completions", path: "/{model}/run" }] },
            },
            params: { apiKey: "own-key" },
          },
        ],
        models: [
          { name: "fast", provider: { reference: "internal" }, params: { model: "small" } },
          { name: "in/*", provider: { reference: "internal" }, params: { model: "*" } },
        ],
      },
    }),
  );
  for (const model of ["fast", "in/large"])
    assert.equal((await post(gateway.url(), "/v1/chat/completions", { model, messages })).status, 200);
  assert.deepEqual(
    received.map((one) => [one.url, one.headers.authorization]),
    [
      ["/small/run", "Bearer own-key"],
      ["/large/run", "Bearer own-key"],
    ],
  );
});

for (const [what, custom] of Object.entries({
  "no formats": { formats: [] },
  "an unknown type": { formats: [{ type: "chat" }] },
  "a type twice": { formats: [{ type: "messages" }, { type: "messages", path: "/a" }] },
  "a path with dot segments": { formats: [{ type: "messages", path: "/a/../b" }] },
  "a path with a query": { formats: [{ type: "messages", path: "/a?b=c" }] },
  "another placeholder": { formats: [{ type: "messages", path: "/{deployment}/a" }] },
  "a header that is not for keys": { keyHeader: "x-token", formats: [{ type: "messages" }] },
}))
  test(`${what}: the configuration is rejected`, async (t) => {
    const provider = { custom: { baseUrl: "http://x.test", ...custom } };
    const config = { gateways: { default: { port: 0 } }, routes: [{ backends: [{ ai: { provider } }] }] };
    await assert.rejects(gatewayFor(t, JSON.stringify(config)), /formats|keyHeader/);
  });
