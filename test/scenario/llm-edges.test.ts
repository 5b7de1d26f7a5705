/**
 * What stands at the edges of LLM calls: WebSockets, counting of tokens, Anthropic's betas at other houses, the ids that
 * providers give to their answers.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let gateway: TestGateway;
let upstream: TestUpstream;
const upgrades: { url: string | undefined; key: string | undefined }[] = [];
const realtime = createServer((_req, res) => res.writeHead(200, { "x-request-id": "req_theirs" }).end("{}"));
realtime.on("upgrade", (req, socket) => {
  upgrades.push({ url: req.url, key: req.headers.authorization });
  socket.end(
    "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello",
  );
});

const AWS = "{ aws: { accessKeyId: AKIDEXAMPLE, secretAccessKey: wJalrXUtnFEMI } }";

before(async () => {
  upstream = await startUpstream();
  await once(realtime.listen(0, "127.0.0.1"), "listening");
  const host = `127.0.0.1:${(realtime.address() as AddressInfo).port}`;
  gateway = await startGateway(`
config: { logging: { format: json } }
gateways: { anthropic: { port: 0 }, openai: { port: 0 }, bedrock: { port: 0 } }
routes:
  - { gateways: anthropic, backends: [{ ai: { provider: { anthropic: {} }, auth: { key: k }, hostOverride: "${upstream.host}" } }] }
  - { gateways: openai, backends: [{ ai: { provider: { openAI: {} }, auth: { key: ours }, hostOverride: "${host}" } }] }
  - { gateways: bedrock, backends: [{ ai: { provider: { bedrock: { region: eu-west-1 } }, auth: ${AWS}, hostOverride: "${upstream.host}" } }] }
`);
});
after(async () => {
  await gateway?.close();
  await upstream.close();
  realtime.close();
  realtime.closeAllConnections();
});

async function upgrade(listener: string, path: string): Promise<string> {
  const { port } = new URL(gateway.url(listener));
  const socket = connect(Number(port), "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.write(
    `GET ${path} HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: websocket\r\nauthorization: Bearer mine\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
  );
  socket.setTimeout(60_000, () => socket.destroy());
  for await (const _ of socket) if (/426|hello/.test(Buffer.concat(chunks).toString())) break;
  socket.destroy();
  return Buffer.concat(chunks).toString();
}

test("a WebSocket that the provider does not have is a 426 at once", async () => {
  const answer = await upgrade("anthropic", "/v1/responses");
  assert.match(answer, /^HTTP\/1\.1 426 /);
  assert.match(answer, /upgrade_required/);
  assert.match(await upgrade("openai", "/v1/responses"), /^HTTP\/1\.1 426 /);
});

test("a WebSocket that the provider has is passed on with the gateway's key", async () => {
  const answer = await upgrade("openai", "/v1/realtime?model=gpt-realtime");
  assert.match(answer, /^HTTP\/1\.1 101 /);
  assert.match(answer, /hello/);
  assert.deepEqual(upgrades, [{ url: "/v1/realtime?model=gpt-realtime", key: "Bearer ours" }]);
});

async function post(listener: string, path: string, body: object, headers: Record<string, string> = {}) {
  return fetch(`${gateway.url(listener)}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

test("a Gemini client's count of tokens is estimated where the provider is another", async () => {
  const contents = [{ role: "user", parts: [{ text: "How many tokens are these words?" }] }];
  const response = await post("anthropic", "/v1beta/models/claude-x:countTokens", { contents });
  const { totalTokens } = (await response.json()) as { totalTokens: number };
  assert.ok(totalTokens > 3 && totalTokens < 40, String(totalTokens));
});

test("betas that Bedrock knows go into the body, others stay behind with their members", async () => {
  const messages = [{ role: "user", content: "Hi" }];
  const asked = { model: "anthropic.claude-x", max_tokens: 5, messages, context_management: { edits: [] } };
  const known = "interleaved-thinking-2025-05-14";
  const kept = "context-management-2025-06-27";
  const first = await post("bedrock", "/v1/messages", asked, { "anthropic-beta": `claude-code-20250219, ${known}` });
  assert.equal(first.headers.get("x-gateway-dropped"), "context_management");
  await first.text();
  const sent = upstream.last();
  assert.deepEqual(sent.body.anthropic_beta, [known]);
  assert.equal("context_management" in sent.body, false);
  assert.equal(sent.headers["anthropic-beta"], undefined);
  await (await post("bedrock", "/v1/messages", asked, { "anthropic-beta": `${kept},${known}` })).text();
  assert.deepEqual(upstream.last().body.anthropic_beta, [kept, known]);
  assert.deepEqual(upstream.last().body.context_management, { edits: [] });
});

test("the provider's own id of an answer is in the log", async () => {
  const response = await post(
    "openai",
    "/v1/chat/completions",
    { model: "m", messages: [] },
    { "x-request-id": "mine-1" },
  );
  await response.text();
  assert.equal(response.headers.get("x-request-id"), "mine-1");
  assert.match(await gateway.logged('"id":"mine-1"'), /"gen_ai.provider.request_id":"req_theirs"/);
});
