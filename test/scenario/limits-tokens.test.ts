/**
 * Spec 3 and 8: token limits on an LLM route, with counts read from the answers' `usage`, plain and streamed.
 */
import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type ShiftedClock, shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";

const USAGE = { prompt_tokens: 9, completion_tokens: 30, total_tokens: 39 };

/** A token limit works in front of a provider that the gateway knows, and of any server whose answers tell usage. */
const BACKENDS = [
  {
    kind: "an ai backend",
    backend: (host: string) =>
      `{ ai: { name: test, provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } } }`,
  },
  { kind: "a plain host", backend: (host: string) => `{ host: "${host}" }` },
];

interface Setup {
  readonly gateway: TestGateway;
  readonly provider: TestBackend;
  readonly clock: ShiftedClock;
  readonly forwarded: () => number;
}

async function setUp(
  t: TestContext,
  backend: (host: string) => string,
  limits: string,
  usage: Record<string, number> = USAGE,
): Promise<Setup> {
  let forwarded = 0;
  const provider = await startBackend((request, response) => {
    forwarded += 1;
    answer(request, response, usage);
  });
  const clock = shiftedClock();
  const gateway = await startGateway(
    `
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [${backend(provider.host)}]
    policies: { rateLimit: { local: ${limits} } }
`,
    { clock },
  );
  t.after(() => gateway.close().finally(provider.close));
  return { gateway, provider, clock, forwarded: () => forwarded };
}

/** A provider in the OpenAI shape: JSON, or chunks that end in usage and [DONE]. */
function answer(request: IncomingMessage, response: ServerResponse, usage: Record<string, number>): void {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const { model, stream } = JSON.parse(Buffer.concat(chunks).toString());
    if (!stream) {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(
        JSON.stringify({
          id: "1",
          object: "chat.completion",
          model,
          choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
          usage,
        }),
      );
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = { id: "1", object: "chat.completion.chunk", model };
    response.write(`data: ${JSON.stringify({ ...chunk, choices: [{ index: 0, delta: { content: "hi" } }] })}\n\n`);
    response.write(`data: ${JSON.stringify({ ...chunk, choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
  });
}

function ask(gateway: TestGateway, body: Record<string, unknown> = {}): Promise<Response> {
  const messages = [{ role: "user", content: "Say hi." }];
  return fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "gpt-test", messages, ...body }),
  });
}

async function statuses(gateway: TestGateway, count: number, body: Record<string, unknown> = {}): Promise<number[]> {
  const results: number[] = [];
  for (let i = 0; i < count; i++) {
    const response = await ask(gateway, body);
    await response.text();
    results.push(response.status);
  }
  return results;
}

for (const { kind, backend } of BACKENDS) {
  test(`${kind}: a budget of 100 tokens with answers of 39 admits 3 and refuses the 4th, until the window ends [S2.6-8] [S3-2] [S3-3]`, async (t) => {
    const { gateway, clock, forwarded } = await setUp(t, backend, "[{ tokens: 100, unit: Minutes }]");
    assert.deepEqual(await statuses(gateway, 4), [200, 200, 200, 429]);
    assert.equal(forwarded(), 3);
    clock.advance(60_000);
    assert.deepEqual(await statuses(gateway, 4), [200, 200, 200, 429]);
  });

  test(`${kind}: a stream that overshoots finishes, and the next call is refused with the text [S3-1] [S4.1-6] [S7-2] [S8-5]`, async (t) => {
    const { gateway } = await setUp(t, backend, "[{ tokens: 50, unit: Minutes }]", {
      prompt_tokens: 9,
      completion_tokens: 500,
      total_tokens: 509,
    });
    const stream = await ask(gateway, { stream: true });
    assert.equal(stream.headers.get("x-ratelimit-limit"), "50");
    assert.match(await stream.text(), /data: \[DONE\]\n\n$/);
    const refused = await ask(gateway, { stream: true });
    assert.deepEqual([refused.status, await refused.text()], [429, "rate limit exceeded"]);
    assert.equal(refused.headers.get("x-ratelimit-remaining"), "0");
  });

  test(`${kind}: a budget that is used up holds on every path and form of the route [V25]`, async (t) => {
    const { gateway, forwarded } = await setUp(t, backend, "[{ tokens: 30, unit: Hours }]");
    assert.deepEqual(await statuses(gateway, 1), [200]);
    const body = JSON.stringify({ model: "gpt-test", messages: [{ role: "user", content: "x" }] });
    const others: [path: string, body: string, headers?: Record<string, string>][] = [
      ["/v1/chat/completions", body.replace("{", '{"stream":true,')],
      ["/v1/chat/completions?x=1", body],
      ["/v1/messages", body],
      ["/v1/responses", body],
      ["/anything/else", body],
      ["/v1/chat/completions", body, { "content-type": "application/JSON; charset=utf-8" }],
      ["/v1/chat/completions", body.replace("gpt-test", "another")],
    ];
    for (const [path, sent, headers] of others) {
      const response = await fetch(gateway.url() + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: sent,
      });
      assert.equal(response.status, 429, `${path} ${sent}`);
      await response.text();
    }
    assert.equal(forwarded(), 1);
  });

  test(`${kind}: where a key reads the model, what names none for certain does not pass`, async (t) => {
    const limits = "[{ tokens: 30, unit: Hours }, { tokens: 30, unit: Hours, key: llm.requestModel }]";
    const { gateway, forwarded } = await setUp(t, backend, limits);
    assert.deepEqual(await statuses(gateway, 1), [200]);
    const body = '{"model":"gpt-test","messages":[{"role":"user","content":"x"}]}';
    const ways: [name: string, sent: string | Buffer, headers: Record<string, string>, status: number][] = [
      ["another content type", body, { "content-type": "text/plain" }, 429],
      ["the content type of forms", body, { "content-type": "application/x-www-form-urlencoded" }, 429],
      ["no content type", Buffer.from(body), {}, 429],
      ["a byte order mark", `\ufeff${body}`, { "content-type": "application/json" }, 429],
      ["an encoded body", gzipSync(body), { "content-type": "application/json", "content-encoding": "gzip" }, 415],
      ["two models", body.replace("{", '{"model":"a",'), { "content-type": "application/json" }, 400],
      ["two bodies", body + body, { "content-type": "application/json" }, 400],
      ["a stream that is no boolean", body.replace("{", '{"stream":"yes",'), { "content-type": "text/plain" }, 400],
    ];
    for (const [name, sent, headers, status] of ways) {
      const url = `${gateway.url()}/v1/chat/completions`;
      const response = await fetch(url, { method: "POST", headers, body: sent as never });
      assert.equal(response.status, status, name);
      await response.text();
    }
    assert.equal(forwarded(), 1);
  });

  test(`${kind}: clients that leave their streams early use up the budget all the same [B4]`, async (t) => {
    const { gateway, provider } = await setUp(t, backend, "[{ tokens: 200, unit: Hours }]");
    provider.server.removeAllListeners("request");
    provider.server.on("request", (request, response) => {
      request.resume();
      response.writeHead(200, { "content-type": "text/event-stream" });
      const delta = { choices: [{ index: 0, delta: { content: "some words of an answer " } }] };
      response.write(`data: ${JSON.stringify(delta)}\n\n`);
    });
    let admitted = 0;
    for (;;) {
      const before = gateway.log().length;
      const stream = await ask(gateway, { stream: true });
      const reader = stream.body?.getReader();
      await reader?.read();
      await reader?.cancel();
      if (stream.status === 429) break;
      admitted += 1;
      await eventually("the request has ended", () => gateway.log().length > before);
    }
    assert.ok(admitted >= 2 && admitted <= 20, `${admitted} were admitted`);
  });

  test(`${kind}: the key may read the model of the request [S2.6-6]`, async (t) => {
    const { gateway } = await setUp(t, backend, "[{ tokens: 30, unit: Hours, key: llm.requestModel }]");
    assert.deepEqual(await statuses(gateway, 2, { model: "a" }), [200, 429]);
    assert.deepEqual(await statuses(gateway, 2, { model: "b" }), [200, 429]);
  });

  test(`${kind}: a call that the token limit refuses costs no request`, async (t) => {
    const limits = "[{ requests: 5, unit: Hours }, { tokens: 30, unit: Minutes }]";
    const { gateway, clock } = await setUp(t, backend, limits);
    assert.deepEqual(await statuses(gateway, 4), [200, 429, 429, 429]);
    for (let i = 0; i < 4; i++) {
      clock.advance(60_000);
      assert.deepEqual(await statuses(gateway, 2), [200, 429], `window ${i}`);
    }
    clock.advance(60_000);
    assert.deepEqual(await statuses(gateway, 1), [429], "five requests were admitted");
  });

  test(`${kind}: request and token limits stand side by side [S1-5]`, async (t) => {
    const { gateway } = await setUp(t, backend, "[{ tokens: 1000, unit: Hours }, { requests: 2, unit: Minutes }]");
    assert.deepEqual(await statuses(gateway, 3), [200, 200, 429]);
  });
}

test("requests that are no LLM calls are not counted", async (t) => {
  const { gateway, provider } = await setUp(t, (host) => `{ host: "${host}" }`, "[{ tokens: 1, unit: Hours }]");
  provider.server.removeAllListeners("request");
  provider.server.on("request", (_request, response) => response.end("ok"));
  for (let i = 0; i < 3; i++) assert.equal((await fetch(`${gateway.url()}/v1/models`)).status, 200);
});
