/**
 * Providers that misbehave, and requests that a target cannot take: nothing hangs, nothing is hidden, nothing is lost.
 */
import assert from "node:assert/strict";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let upstream: TestUpstream;
let guardedUpstream: TestUpstream;
let raw: Server;
let gateway: TestGateway;
let rawRequest: { url: string; headers: Record<string, unknown>; body: string } | undefined;
/** What the raw provider does with a response. */
let answer: (res: ServerResponse) => void;

before(async () => {
  upstream = await startUpstream();
  guardedUpstream = await startUpstream();
  raw = createServer((req, res) => {
    let body = "";
    req.on("data", (chunk) => {
      body += chunk;
    });
    req.on("end", () => {
      rawRequest = { url: req.url ?? "", headers: req.headers, body };
      answer(res);
    });
  });
  await new Promise<void>((resolve) => raw.listen(0, "127.0.0.1", resolve));
  const rawHost = `127.0.0.1:${(raw.address() as AddressInfo).port}`;
  const target = (provider: string, host = upstream.host) =>
    `{ provider: { ${provider}: {} }, auth: { key: k }, hostOverride: "${host}" }`;
  const guard = (action: string) =>
    `{ ai: { promptGuard: { response: [{ regex: { action: ${action}, rules: [{ pattern: friend }] } }] } } }`;
  gateway = await startGateway(`
config: { logging: { format: json } }
gateways: { guarded: { port: 0 }, rawclaude: { port: 0 }, rawopenai: { port: 0 }, spare: { port: 0 }, mixed: { port: 0 }, words: { port: 0 }, list: { port: 0 }, one: { port: 0 }, claude: { port: 0 }, gemini: { port: 0 }, bedrock: { port: 0 }, rawbedrock: { port: 0 }, keyless: { port: 0 } }
routes:
  - { name: keyless, gateways: keyless, backends: [{ ai: { provider: { bedrock: { region: eu-west-1 } }, hostOverride: "${upstream.host}" } }] }
  - { name: guarded, gateways: guarded, policies: ${guard("reject")}, backends: [{ ai: ${target("openAI", guardedUpstream.host)} }] }
  - { name: rawclaude, gateways: rawclaude, backends: [{ ai: ${target("anthropic", rawHost)} }] }
  - { name: rawopenai, gateways: rawopenai, backends: [{ ai: ${target("openAI", rawHost)} }] }
  - { name: rawbedrock, gateways: rawbedrock, backends: [{ ai: { provider: { bedrock: { region: eu-west-1 } }, auth: { key: k }, hostOverride: "${rawHost}" } }] }
  - { name: spare, gateways: spare, backends: [{ ai: { groups: [{ providers: [${target("openAI")}] }, { providers: [${target("anthropic")}] }] } }] }
  - { name: mixed, gateways: mixed, backends: [{ ai: { groups: [{ providers: [${target("anthropic")}] }, { providers: [${target("openAI")}] }] } }] }
  - { name: words, gateways: words, policies: { ai: { promptGuard: { request: [{ regex: { action: reject, rules: [{ pattern: forbidden }] } }] } } }, backends: [{ ai: ${target("openAI")} }] }
  - { name: list, gateways: list, backends: [{ ai: { models: [{ name: a, provider: openAI, params: { apiKey: k, hostOverride: "${rawHost}" } }, { name: b, provider: anthropic, params: { apiKey: k, hostOverride: "${rawHost}" } }] } }] }
  - { name: one, gateways: one, backends: [{ ai: { provider: { anthropic: {} }, auth: { key: k }, hostOverride: "${rawHost}", pathOverride: /v1/messages } }] }
  - { name: claude, gateways: claude, backends: [{ ai: ${target("anthropic")} }] }
  - { name: gemini, gateways: gemini, backends: [{ ai: ${target("gemini")} }] }
  - { name: bedrock, gateways: bedrock, backends: [{ ai: { provider: { bedrock: { region: eu-west-1 } }, auth: { key: k }, hostOverride: "${upstream.host}" } }] }
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
  await guardedUpstream.close();
  raw.close();
  raw.closeAllConnections();
});

const question = { model: "m", messages: [{ role: "user", content: "Hi" }] };
const ask = (listener: string, body: unknown, path = "/v1/chat/completions", headers = {}) =>
  fetch(`${gateway.url(listener)}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });

/** What came before the connection broke. */
async function readBroken(response: Response): Promise<string> {
  let text = "";
  await assert.rejects(async () => {
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString();
  });
  return text;
}

test("a provider whose stream a guard refused is left at once, and what it wrote is charged", async () => {
  const body = { ...question, model: "endless", stream: true };
  const text = await readBroken(await ask("guarded", body, undefined, { "x-request-id": "refused-1" }));
  assert.match(text, /content_rejected/);
  assert.ok(!text.includes("friend"));
  await guardedUpstream.left;
  const line = JSON.parse(await gateway.logged("refused-1")) as Record<string, number>;
  assert.ok((line["gen_ai.usage.input_tokens"] ?? 0) > 0);
  assert.ok((line["gen_ai.usage.output_tokens"] ?? 0) > 0);
});

test("a stream that cannot be translated further is left at once, and ends with an error event", async () => {
  const left = new Promise<void>((resolve) => {
    answer = (res) => {
      res.on("close", resolve);
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`data: ${JSON.stringify({ type: "message_start", message: { id: "1", model: "c" } })}\n\n`);
      res.write("data: {half an event\n\n");
    };
  });
  const text = await readBroken(await ask("rawclaude", { ...question, stream: true }));
  await left;
  assert.match(text, /upstream_error/);
  assert.ok(!text.includes("[DONE]"));
});

test("an answer of 200 that is an error inside is an error for the client of another dialect", async () => {
  answer = (res) => res.writeHead(200, { "content-type": "application/json" }).end('{"error":{"message":"no credit"}}');
  const response = await ask("rawopenai", { ...question, max_tokens: 5 }, "/v1/messages");
  assert.equal(response.status, 502);
  assert.deepEqual(await response.json(), { type: "error", error: { type: "api_error", message: "no credit" } });
});

test("an answer without any choice is an error, not an empty answer", async () => {
  answer = (res) => res.writeHead(200, { "content-type": "application/json" }).end('{"choices":[]}');
  assert.equal((await ask("rawopenai", { ...question, max_tokens: 5 }, "/v1/messages")).status, 502);
});

test("a JSON answer without end is left when it is too large to be translated", async () => {
  const left = new Promise<void>((resolve) => {
    answer = (res) => {
      res.on("close", resolve);
      res.writeHead(200, { "content-type": "application/json" });
      const more = (): void => {
        while (!res.destroyed && res.write(Buffer.alloc(256 * 1024, 32)));
        if (!res.destroyed) res.once("drain", more);
      };
      more();
    };
  });
  assert.equal((await ask("rawclaude", question)).status, 502);
  await left;
});

test("what Bedrock counts beside an answer of a model's own shape is what is charged", async () => {
  answer = (res) =>
    res
      .writeHead(200, {
        "content-type": "application/json",
        "x-amzn-bedrock-input-token-count": "31",
        "x-amzn-bedrock-output-token-count": "4",
      })
      .end('{"results":[{"outputText":"Hi."}]}');
  await ask("rawbedrock", { inputText: "Hi" }, "/model/titan/invoke", { "x-request-id": "titan-1" });
  const line = JSON.parse(await gateway.logged("titan-1")) as Record<string, unknown>;
  assert.equal(line["gen_ai.usage.input_tokens"], 31);
  assert.equal(line["gen_ai.usage.output_tokens"], 4);
  assert.equal(line["gen_ai.response.model"], "titan");
});

test("a spare target that cannot take the request does not hide the answer that there is", async () => {
  const response = await ask("spare", { ...question, model: "fail-503", seed: 1 });
  assert.equal(response.status, 503);
  assert.match(await response.text(), /canned 503/);
});

test("a target that cannot take the request is passed over for one that can", async () => {
  assert.equal((await ask("mixed", { ...question, seed: 1 })).status, 200);
  assert.match(upstream.last().url, /chat\/completions$/);
  const neither = await ask("mixed", { ...question, contents: 1 }, "/v1beta/models/m:generateContent");
  assert.equal(neither.status, 400);
});

test("texts that are passed on unread are guarded all the same", async () => {
  const calls = upstream.requests.length;
  for (const [path, body] of [
    ["/v1/completions", { model: "m", prompt: "a forbidden word" }],
    ["/v1/images/generations", { model: "m", prompt: "a forbidden picture" }],
    ["/v1/rerank", { model: "m", query: "x", documents: ["forbidden"] }],
  ] as const)
    assert.equal((await ask("words", body, path)).status, 403, path);
  assert.equal(upstream.requests.length, calls);
});

test("files go to the provider as they came, without the client's key in the query", async () => {
  answer = (res) => res.writeHead(200, { "content-type": "application/json" }).end('{"id":"file-1"}');
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new Blob(["a line"]), "lines.jsonl");
  const response = await fetch(`${gateway.url("rawopenai")}/v1/files?key=client-key&x=1`, {
    method: "POST",
    body: form,
  });
  assert.equal(response.status, 200);
  assert.equal(rawRequest?.url, "/v1/files?x=1");
  assert.equal(rawRequest?.headers.authorization, "Bearer k");
  assert.match(rawRequest?.body ?? "", /a line/);
});

test("among several providers only models can be asked for", async () => {
  rawRequest = undefined;
  assert.equal((await fetch(`${gateway.url("list")}/v1/files`)).status, 404);
  assert.equal(rawRequest, undefined);
});

test("a question that costs nothing is not sent where every call goes to one path", async () => {
  rawRequest = undefined;
  assert.equal((await ask("one", { ...question, max_tokens: 5 }, "/v1/messages/count_tokens")).status, 400);
  assert.equal(rawRequest, undefined);
});

test("Bedrock without any credential is a 401 in the client's dialect that names what can be set", async () => {
  const response = await ask("keyless", question);
  assert.equal(response.status, 401);
  const { error } = (await response.json()) as { error: { code: string; message: string } };
  assert.equal(error.code, "missing_credential");
  assert.match(error.message, /auth\.aws.*AWS_WEB_IDENTITY_TOKEN_FILE.*instance/);
});

for (const listener of ["claude", "gemini", "bedrock"]) {
  test(`a response that is stored elsewhere is a clear 400 at ${listener}`, async () => {
    const calls = upstream.requests.length;
    const body = { model: "m", input: "Hi", previous_response_id: "resp_1" };
    const response = await ask(listener, body, "/v1/responses");
    assert.equal(response.status, 400);
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    assert.equal(error.code, "unsupported_parameter");
    assert.match(error.message, /previous_response_id/);
    assert.equal(upstream.requests.length, calls);
  });
}

test("stream options that are no object are left for the provider to refuse", async () => {
  answer = (res) => res.writeHead(400, { "content-type": "application/json" }).end("{}");
  await ask("rawopenai", { ...question, stream: true, stream_options: "x" });
  assert.equal((JSON.parse(rawRequest?.body ?? "{}") as { stream_options: unknown }).stream_options, "x");
  await ask("rawopenai", { ...question, stream: true, stream_options: null });
  assert.deepEqual((JSON.parse(rawRequest?.body ?? "{}") as { stream_options: unknown }).stream_options, {
    include_usage: true,
  });
});
