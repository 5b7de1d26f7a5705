/**
 * Guards by webhook: requests, JSON answers and streams; pass, mask and reject; what fails or takes too long.
 */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Question {
  readonly direction: string;
  readonly model: string;
  readonly texts: string[];
}

type Verdict = (question: Question, response: ServerResponse) => object | undefined;

/** Returns undefined if it answers by itself, or not at all. */
async function guard(
  t: TestContext,
  verdict: Verdict,
): Promise<{ host: string; asked: Question[]; tokens: unknown[] }> {
  const asked: Question[] = [];
  const tokens: unknown[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const question = JSON.parse(text) as Question;
      asked.push(question);
      tokens.push(request.headers["x-token"]);
      const said = verdict(question, response);
      if (said !== undefined) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(said));
    });
  });
  return { host, asked, tokens };
}

async function setUp(t: TestContext, rules: string): Promise<{ gateway: TestGateway; sent: string[] }> {
  const sent: string[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      sent.push(text);
      const { model, stream } = JSON.parse(text) as { model: string; stream?: boolean };
      if (stream !== true) {
        const choices = [
          { index: 0, message: { role: "assistant", content: "the secret word" }, finish_reason: "stop" },
        ];
        const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ id: "1", object: "chat.completion", model, choices, usage }));
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const content of ["the sec", "ret ", "word"])
        response.write(
          `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", model, choices: [{ index: 0, delta: { content } }] })}\n\n`,
        );
      response.end("data: [DONE]\n\n");
    });
  });
  const gateway = await gatewayFor(
    t,
    `
config: { adminAddr: "127.0.0.1:0" }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    backends: [{ ai: { provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } } }]
    policies: { ai: { promptGuard: ${rules} } }
`,
  );
  return { gateway, sent };
}

const hook = (host: string, more = ""): string =>
  `[{ webhook: { url: "http://${host}/guard"${more.includes("timeout") ? "" : ", timeout: 60s"}${more} } }]`;

function ask(gateway: TestGateway, stream = false, path = "/v1/chat/completions"): Promise<Response> {
  const messages = [{ role: "user", content: "my card is 4111" }];
  return fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages, ...(stream ? { stream } : {}), max_tokens: 5 }),
  });
}

const deltas = (text: string): string =>
  [...text.matchAll(/^data: (\{.*)$/gm)]
    .map(
      ([, data]) =>
        (JSON.parse(data ?? "") as { choices: { delta: { content?: string } }[] }).choices[0]?.delta.content ?? "",
    )
    .join("");

test("a request is passed as it is, masked, or rejected in the client's dialect without reaching the provider", async (t) => {
  let said: object = { action: "pass" };
  const behind = await guard(t, () => said);
  const { gateway, sent } = await setUp(t, `{ request: ${hook(behind.host, ", headers: { x-token: t0ken }")} }`);
  assert.equal((await ask(gateway)).status, 200);
  assert.deepEqual(behind.asked[0], { direction: "request", model: "m", texts: ["my card is 4111"] });
  assert.equal(behind.tokens[0], "t0ken");
  assert.match(sent[0] ?? "", /my card is 4111/);
  said = { action: "mask", texts: ["my card is ****"] };
  assert.equal((await ask(gateway)).status, 200);
  assert.match(sent[1] ?? "", /my card is \*\*\*\*/);
  said = { action: "reject", status: 422, message: "no cards" };
  const refused = await ask(gateway);
  assert.equal(refused.status, 422);
  assert.deepEqual(((await refused.json()) as { error: { message: string; code: string } }).error.message, "no cards");
  const messages = await ask(gateway, false, "/v1/messages");
  assert.deepEqual([messages.status, ((await messages.json()) as { type: string }).type], [422, "error"]);
  said = { action: "reject" };
  assert.equal((await ask(gateway)).status, 403);
  assert.equal(sent.length, 2);
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.ok(!dump.includes("t0ken"));
});

test("an answer is passed, masked or rejected, as JSON and as a stream whose words come in pieces", async (t) => {
  let said: object = { action: "pass" };
  const behind = await guard(t, () => said);
  const { gateway } = await setUp(t, `{ response: ${hook(behind.host)} }`);
  assert.match(await (await ask(gateway)).text(), /the secret word/);
  assert.equal(deltas(await (await ask(gateway, true)).text()), "the secret word");
  assert.deepEqual(behind.asked[1]?.texts, ["the secret word"], "the guard sees the stream's words together");
  said = { action: "mask", texts: ["the <masked> word"] };
  assert.match(await (await ask(gateway)).text(), /the <masked> word/);
  const masked = await ask(gateway, true);
  assert.match(masked.headers.get("content-type") ?? "", /^text\/event-stream/);
  const text = await masked.text();
  assert.equal(deltas(text), "the <masked> word");
  assert.match(text, /data: \[DONE\]/);
  said = { action: "reject", message: "not that" };
  for (const stream of [false, true]) {
    const refused = await ask(gateway, stream);
    assert.equal(refused.status, 403);
    const body = await refused.text();
    assert.ok(body.includes("not that") && !body.includes("secret"), body);
  }
});

const FAILURES: Readonly<Record<string, Verdict>> = {
  "a status of 500": (_, response) => void response.writeHead(500).end(),
  "no JSON": (_, response) => void response.end("yes"),
  "an unknown action": () => ({ action: "maybe" }),
  "too few texts": () => ({ action: "mask", texts: [] }),
  "a redirect": (_, response) => void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
  "no answer in time": () => undefined,
};
for (const [what, verdict] of Object.entries(FAILURES)) {
  test(`${what}: closed rejects with 503, open passes`, async (t) => {
    const behind = await guard(t, verdict);
    const closed = await setUp(t, `{ request: ${hook(behind.host, ", timeout: 100ms")} }`);
    const refused = await ask(closed.gateway);
    assert.equal(refused.status, 503);
    assert.equal(closed.sent.length, 0);
    const answers = await setUp(t, `{ response: ${hook(behind.host, ", timeout: 100ms")} }`);
    const held = await ask(answers.gateway, true);
    assert.equal(held.status, 503);
    assert.ok(!(await held.text()).includes("sec"));
    const open = await setUp(t, `{ request: ${hook(behind.host, ", timeout: 100ms, failureMode: open")} }`);
    assert.equal((await ask(open.gateway)).status, 200);
    assert.match(
      await (await fetch(`${open.gateway.adminUrl}/metrics`)).text(),
      /gateway_llm_guard_failures_total\{.*\} 1/,
    );
  });
}

test("a client that leaves while the guard thinks: the provider is not asked", async (t) => {
  let think: () => void = () => undefined;
  const thinking = new Promise<void>((resolve) => {
    think = resolve;
  });
  let answer: () => void = () => undefined;
  const behind = await guard(t, (_, response) => {
    answer = () => response.end(JSON.stringify({ action: "pass" }));
    think();
    return undefined;
  });
  const { gateway, sent } = await setUp(t, `{ request: ${hook(behind.host)} }`);
  const leaving = new AbortController();
  const asked = fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    signal: leaving.signal,
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }),
  }).catch(() => undefined);
  await thinking;
  leaving.abort();
  await asked;
  await gateway.logged("/v1/chat/completions");
  answer();
  await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.equal(sent.length, 0);
});
