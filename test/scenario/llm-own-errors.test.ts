/**
 * The gateway's own errors on routes with an `ai` backend, in the shape of the client's SDK; the literal text of a limited
 * stream stays. Routes without such a backend stay as they are.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let gateway: TestGateway;
let upstream: TestUpstream;

before(async () => {
  upstream = await startUpstream();
  const ai = `ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "${upstream.host}" }`;
  gateway = await startGateway(`
gateways: { open: { port: 0 }, keyed: { port: 0 }, down: { port: 0 }, limited: { port: 0 }, plain: { port: 0 } }
routes:
  - { gateways: open, backends: [{ ${ai} }] }
  - { gateways: keyed, policies: { apiKey: { keys: [{ key: secret-key }] } }, backends: [{ ${ai} }] }
  - { gateways: down, backends: [{ ai: { provider: { openAI: {} }, auth: { key: k }, hostOverride: "127.0.0.1:1" } }] }
  - { gateways: limited, policies: { rateLimit: { local: [{ tokens: 1, unit: Hours }] } }, backends: [{ ${ai} }] }
  - { gateways: plain, policies: { apiKey: { keys: [{ key: secret-key }] } }, backends: [{ host: "${upstream.host}" }] }
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

function ask(listener: string, path: string, extra: object = {}): Promise<Response> {
  return fetch(`${gateway.url(listener)}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", max_tokens: 5, messages: [{ role: "user", content: "Hi" }], ...extra }),
  });
}

type Body = Record<string, Record<string, unknown>>;

type Check = (body: Body, headers: Headers) => void;
const openAI: Check = ({ error }) => assert.equal(error?.type, "authentication_error");
const anthropic: Check = ({ type, error }) => assert.deepEqual([type, error?.type], ["error", "authentication_error"]);
const google: Check = ({ error }) => assert.deepEqual([error?.code, error?.status], [401, "UNAUTHENTICATED"]);
const amazon: Check = ({ message }, headers) => {
  assert.equal(typeof message, "string");
  assert.equal(headers.get("x-amzn-errortype"), "UnrecognizedClientException");
};
const shapes: [path: string, check: Check][] = [
  ["/v1/chat/completions", openAI],
  ["/v1/responses", openAI],
  ["/v1/images/generations", openAI],
  ["/v1/files", openAI],
  ["/v1/messages", anthropic],
  ["/v1/messages/count_tokens", anthropic],
  ["/v1/messages/batches", anthropic],
  ["/v1beta/models/m:generateContent", google],
  ["/v1beta/models/m:countTokens", google],
  ["/v1beta/models/m:embedContent", google],
  ["/v1beta/models/m:predict", google],
  ["/v1beta/cachedContents", google],
  ["/v1beta/files", google],
  ["/v1beta/interactions", google],
  ["/model/m/converse", amazon],
  ["/model/m/invoke", amazon],
  ["/model/m/count-tokens", amazon],
];
for (const [path, check] of shapes) {
  test(`a missing key at ${path} is an error of the client's SDK`, async () => {
    const response = await ask("keyed", path);
    assert.equal(response.status, 401);
    assert.match(response.headers.get("x-gateway-error") ?? "", /\w/);
    check((await response.json()) as Body, response.headers);
  });
}

test("a body that cannot be read is a 400 in the client's shape, with the name that an AWS SDK looks for", async () => {
  for (const path of ["/model/m/converse", "/model/m/count-tokens"]) {
    const response = await ask("open", path, { model: 7 });
    assert.deepEqual([response.status, response.headers.get("x-amzn-errortype")], [400, "ValidationException"], path);
  }
  const predict = await ask("open", "/v1beta/models/other:predict");
  const { error } = (await predict.json()) as Body;
  assert.deepEqual([predict.status, error?.status], [400, "INVALID_ARGUMENT"]);
});

test("a path of another provider's API that cannot be translated is a 400, and the provider is not called", async () => {
  for (const path of ["/v1beta/models/m:batchEmbedContents", "/v1beta/models/m:embedContent"]) {
    const response = await ask("down", path, { requests: [] });
    const { error } = (await response.json()) as Body;
    assert.deepEqual([response.status, error?.status], [400, "INVALID_ARGUMENT"], path);
    assert.match(String(error?.message), /the provider openai cannot be asked in the/);
  }
});

test("a provider that is down is a 502 in the client's shape", async () => {
  const response = await ask("down", "/v1/messages");
  assert.equal(response.status, 502);
  const { error } = (await response.json()) as Body;
  assert.equal(error?.type, "api_error");
});

test("a token limit is a 429 in the client's shape; of a stream it is the literal text", async () => {
  await (await ask("limited", "/v1/chat/completions")).text();
  const json = await ask("limited", "/v1/chat/completions");
  const { error } = (await json.json()) as Body;
  assert.deepEqual([json.status, error?.type, error?.message], [429, "rate_limit_error", "rate limit exceeded"]);
  assert.ok(json.headers.get("retry-after"));
  const stream = await ask("limited", "/v1/chat/completions", { stream: true });
  assert.deepEqual([stream.status, await stream.text()], [429, "rate limit exceeded"]);
});

test("other routes keep the gateway's own form", async () => {
  const response = await ask("plain", "/v1/chat/completions");
  assert.equal(response.status, 401);
  assert.doesNotMatch(await response.text(), /authentication_error/);
});
