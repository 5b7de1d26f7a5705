/**
 * Chat streams of a server that rejects `stream_options`, which the gateway adds to count tokens: the call is repeated
 * without them, and the gateway omits them until the configuration changes. Every other error reaches the client.
 */
import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";

type Body = Record<string, unknown>;

interface StandIn {
  readonly host: string;
  readonly calls: Body[];
  readonly server: Server;
}

const STREAM = ["Hello", " world"]
  .map((content) => `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: { content } }] })}\n\n`)
  .concat('data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', "data: [DONE]\n\n")
  .join("");
const REJECTED = JSON.stringify({ error: { message: "Unrecognized request argument supplied: stream_options" } });
const WRONG = JSON.stringify({ error: { message: "temperature must be at most 2" } });

/** A server with chat streams but without `stream_options`, or with another complaint about every request. */
async function startStandIn(t: TestContext, status = 400, isAlwaysWrong = false): Promise<StandIn> {
  const calls: Body[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Body;
      calls.push(body);
      if (isAlwaysWrong || body.stream_options !== undefined)
        response.writeHead(status, { "content-type": "application/json" }).end(isAlwaysWrong ? WRONG : REJECTED);
      else response.writeHead(200, { "content-type": "text/event-stream" }).end(STREAM);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { host: `127.0.0.1:${(server.address() as AddressInfo).port}`, calls, server };
}

function provider(name: string, { host }: StandIn): string {
  return `{ name: ${name}, provider: { openAI: { model: m } }, hostOverride: "${host}", auth: { key: k } }`;
}

function config(standIns: readonly StandIn[], settings = ""): string {
  const groups = standIns.map((one, i) => `{ providers: [${provider(`p${i}`, one)}] }`);
  return `
gateways: { default: { port: 0 } }
routes:
  - backends: [{ ai: { ${settings} groups: [${groups.join(", ")}] } }]
`;
}

async function open(t: TestContext, standIns: readonly StandIn[], settings = ""): Promise<TestGateway> {
  const gateway = await startGateway(config(standIns, settings));
  t.after(() => gateway.close());
  return gateway;
}

async function ask(gateway: TestGateway, extra: object = {}, path = "/v1/chat/completions"): Promise<[number, string]> {
  const response = await fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: "Hi" }], ...extra }),
  });
  return [response.status, await response.text()];
}

for (const status of [400, 422]) {
  test(`a rejection with ${status} costs one call, once`, async (t) => {
    const standIn = await startStandIn(t, status);
    const gateway = await open(t, [standIn]);
    assert.deepEqual(await ask(gateway), [200, STREAM]);
    assert.deepEqual(
      standIn.calls.map((body) => body.stream_options),
      [{ include_usage: true }, undefined],
    );
    await gateway.logged("the provider rejects stream_options");
    assert.deepEqual(await ask(gateway), [200, STREAM]);
    assert.equal(standIn.calls.length, 3);
    const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
    assert.match(metrics, /gen_ai_client_token_usage_sum\{[^}]*output[^}]*\} [1-9]/, "the tokens are estimated");
  });
}

test("a translated stream is repeated too", async (t) => {
  const standIn = await startStandIn(t);
  const gateway = await open(t, [standIn]);
  const [status, text] = await ask(gateway, { max_tokens: 10 }, "/v1/messages");
  assert.equal(status, 200);
  assert.match(text, /Hello/);
  assert.equal(standIn.calls.length, 2);
});

test("other errors are not repeated", async (t) => {
  const standIn = await startStandIn(t, 400, true);
  const gateway = await open(t, [standIn]);
  for (let i = 1; i <= 2; i++) {
    assert.deepEqual(await ask(gateway), [400, WRONG]);
    assert.equal(standIn.calls.length, i);
    assert.deepEqual(standIn.calls.at(-1)?.stream_options, { include_usage: true });
  }
});

test("the client's own stream_options are its own", async (t) => {
  const standIn = await startStandIn(t);
  const gateway = await open(t, [standIn]);
  assert.deepEqual(await ask(gateway, { stream_options: { include_usage: true } }), [400, REJECTED]);
  assert.equal(standIn.calls.length, 1);
});

test("a rejection is repeated before a 400 moves on to the next provider", async (t) => {
  const [first, second] = [await startStandIn(t), await startStandIn(t)];
  const gateway = await open(t, [first, second], "failoverOn: [400],");
  assert.deepEqual(await ask(gateway), [200, STREAM]);
  assert.deepEqual([first.calls.length, second.calls.length], [2, 0]);
});

test("another 400 still moves on to the next provider", async (t) => {
  const [first, second] = [await startStandIn(t, 400, true), await startStandIn(t)];
  const gateway = await open(t, [first, second], "failoverOn: [400],");
  assert.deepEqual(await ask(gateway), [200, STREAM]);
  assert.deepEqual([first.calls.length, second.calls.length], [1, 2]);
});

test("a changed configuration forgets the rejection", async (t) => {
  const standIn = await startStandIn(t);
  const gateway = await open(t, [standIn]);
  await ask(gateway);
  await gateway.reload(config([standIn], "failoverOn: [429],"));
  assert.deepEqual(await ask(gateway), [200, STREAM]);
  assert.equal(standIn.calls.length, 4);
});
