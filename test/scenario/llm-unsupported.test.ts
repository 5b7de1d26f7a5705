/**
 * Parameters that a provider's API does not have (`unsupported`): left out and named, passed, or refused; a provider that
 * has them is tried first. And streams of generateContent clients that want one JSON array.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";
import { TEXT } from "../support/llm/upstream-answers.ts";

let gateway: TestGateway;
let openai: TestUpstream;
let claude: TestUpstream;

before(async () => {
  openai = await startUpstream();
  claude = await startUpstream();
  const anthropic = `provider: { anthropic: { model: claude-x } }, auth: { key: k }, hostOverride: "${claude.host}"`;
  gateway = await startGateway(`
gateways: { drop: { port: 0 }, pass: { port: 0 }, refuse: { port: 0 }, both: { port: 0 } }
routes:
  - { gateways: drop, backends: [{ ai: { ${anthropic} } }] }
  - { gateways: pass, backends: [{ ai: { unsupported: pass, ${anthropic} } }] }
  - { gateways: refuse, backends: [{ ai: { unsupported: refuse, ${anthropic} } }] }
  - gateways: both
    backends:
      - ai:
          groups:
            - providers: [{ ${anthropic} }]
            - providers: [{ provider: { openAI: { model: gpt-x } }, auth: { key: k }, hostOverride: "${openai.host}" }]
`);
});
after(async () => {
  await gateway?.close();
  await openai.close();
  await claude.close();
});

function ask(listener: string, extra: object): Promise<Response> {
  return fetch(`${gateway.url(listener)}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }], ...extra }),
  });
}

test("left out and named, for JSON, streams and errors", async () => {
  for (const extra of [{}, { stream: true }]) {
    const response = await ask("drop", { seed: 7, logit_bias: { 1: 2 }, ...extra });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get("x-gateway-dropped"), "logit_bias, seed");
    await response.text();
    assert.equal("seed" in claude.last().body, false);
  }
  const plain = await ask("drop", {});
  assert.equal(plain.headers.get("x-gateway-dropped"), null);
  await plain.text();
});

test("the access log and the request's record name it too", async () => {
  const id = "dropped-seed";
  const response = await fetch(`${gateway.url("drop")}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-request-id": id },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }], seed: 7, logit_bias: { 1: 2 } }),
  });
  await response.text();
  assert.match(await gateway.logged(id), /llm\.dropped="?logit_bias,seed"?/);
  const [record] = (await (await fetch(`${gateway.adminUrl}/debug/requests?id=${id}`)).json()).requests;
  assert.deepEqual(record.llm.dropped, ["logit_bias", "seed"]);
  assert.ok(
    record.story.includes("Left out, because `anthropic` does not support it: `logit_bias`, `seed`."),
    record.story.join("\n"),
  );
});

test("the trace names it too", async () => {
  const traced = await fetch(`${gateway.adminUrl}/debug/trace`);
  const response = await ask("drop", { seed: 7 });
  await response.text();
  const events = await traced.text();
  assert.match(events, /"kind":"llmDropped","details":\{"members":\["seed"\]\}/);
});

test("passed as it is", async () => {
  const response = await ask("pass", { seed: 7 });
  await response.text();
  assert.equal(response.headers.get("x-gateway-dropped"), null);
  assert.equal(claude.last().body.seed, 7);
});

test("refused by name", async () => {
  const calls = claude.requests.length;
  const response = await ask("refuse", { seed: 7 });
  const { error } = (await response.json()) as { error: { code: string; param: string } };
  assert.deepEqual([response.status, error.code, error.param], [400, "unsupported_parameter", "seed"]);
  assert.equal(claude.requests.length, calls);
});

test("a provider that has the parameter is tried first, and only then", async () => {
  const before = openai.requests.length;
  assert.equal((await ask("both", {})).status, 200);
  assert.equal(openai.requests.length, before, "nothing is left out: the first provider answers");
  const response = await ask("both", { seed: 7 });
  assert.equal(response.headers.get("x-gateway-dropped"), null);
  assert.equal(((await response.json()) as { model: string }).model, "gpt-x");
  assert.equal(openai.last().body.seed, 7);
});

test("a stream without alt=sse is one JSON array, as Google's API writes it", async () => {
  const response = await fetch(`${gateway.url("drop")}/v1beta/models/m:streamGenerateContent`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ contents: [{ role: "user", parts: [{ text: "Hi" }] }] }),
  });
  assert.match(response.headers.get("content-type") ?? "", /^application\/json/);
  const pieces = (await response.json()) as { candidates: { content: { parts: { text: string }[] } }[] }[];
  const said = pieces.map(({ candidates }) => candidates[0]?.content.parts.map(({ text }) => text).join("")).join("");
  assert.equal(said, TEXT.join(""));
});
