/**
 * Spec 8, token counting: provider × JSON or stream × cached or not × finished or left, exact counts in the log.
 */
import assert from "node:assert/strict";
import { get, request } from "node:http";
import { after, before, test } from "node:test";
import { estimateTextTokens } from "../../src/llm/usage/estimate-tokens.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";
import { COUNTS, TEXT } from "../support/llm/upstream-answers.ts";

let gateway: TestGateway;
const upstreams: TestUpstream[] = [];

const PROVIDERS: Readonly<Record<string, string>> = {
  openai: "{ openAI: {} }",
  azure: "{ azure: { resourceName: r, apiVersion: 2024-10-21 } }",
  compatible: '{ openAICompatible: { baseUrl: "http://HOST/v1" } }',
  anthropic: "{ anthropic: {} }",
  gemini: "{ gemini: {} }",
  vertex: "{ vertex: { projectId: p } }",
  bedrock: "{ bedrock: { region: eu-west-1 } }",
};

before(async () => {
  for (const _ of Object.keys(PROVIDERS)) upstreams.push(await startUpstream());
  const names = Object.keys(PROVIDERS);
  const host = (i: number): string => upstreams[i]?.host ?? "";
  gateway = await startGateway(`
config: { logging: { format: json } }
gateways: { ${names.map((name) => `${name}: { port: 0 }`).join(", ")} }
routes:
${names.map((name, i) => `  - { name: ${name}, gateways: ${name}, backends: [{ ai: { provider: ${PROVIDERS[name]?.replace("HOST", host(i))}, auth: { key: k }, hostOverride: "${host(i)}" } }] }`).join("\n")}
`);
});
after(async () => {
  await gateway?.close();
  await Promise.all(upstreams.map((upstream) => upstream.close()));
});

const messages = [{ role: "user", content: "Hello?" }];
/** Three for the request, four for each message, and the words. */
const estimatedInput = (way: Way): number =>
  3 + (way.dialect === "responses" ? 0 : 4) + estimateTextTokens(Buffer.from("Hello?"));
interface Way {
  readonly listener: string;
  readonly dialect: string;
  path(model: string, stream: boolean): string;
  body(model: string, stream: boolean): object;
}
const chat = (listener: string): Way => ({
  listener,
  dialect: "chat",
  path: () => "/v1/chat/completions",
  body: (model, stream) => ({ model, messages, stream }),
});
const anthropic = (listener: string): Way => ({
  listener,
  dialect: "messages",
  path: () => "/v1/messages",
  body: (model, stream) => ({ model, max_tokens: 50, messages, stream }),
});
const ways: Way[] = [
  ...Object.keys(PROVIDERS).map(chat),
  anthropic("anthropic"),
  anthropic("openai"),
  // A Claude on Bedrock reads Anthropic's own body.
  {
    ...anthropic("bedrock"),
    body: (model, stream) => ({ model: `us.anthropic.claude-${model}`, max_tokens: 50, messages, stream }),
  },
  {
    listener: "openai",
    dialect: "responses",
    path: () => "/v1/responses",
    body: (model, stream) => ({ model, input: "Hello?", stream }),
  },
  {
    listener: "gemini",
    dialect: "generateContent",
    path: (model, stream) => `/v1beta/models/${model}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
    body: () => ({ contents: [{ role: "user", parts: [{ text: "Hello?" }] }] }),
  },
  {
    listener: "bedrock",
    dialect: "converse",
    path: (model, stream) => `/model/${model}/${stream ? "converse-stream" : "converse"}`,
    body: () => ({ messages: [{ role: "user", content: [{ text: "Hello?" }] }] }),
  },
];

/** Sends a request and reads the answer whole, or leaves as soon as `leavesAt` has arrived. */
function send(way: Way, model: string, stream: boolean, id: string, leavesAt?: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "x-request-id": id };
    const outgoing = request(
      `${gateway.url(way.listener)}${way.path(model, stream)}`,
      { method: "POST", headers, agent: false },
      (response) => {
        assert.equal(response.statusCode, 200);
        let text = "";
        response.on("error", () => resolve());
        response.on("end", resolve);
        response.on("data", (chunk) => {
          text += chunk;
          if (leavesAt === undefined || !text.includes(leavesAt)) return;
          outgoing.destroy();
          resolve();
        });
      },
    );
    outgoing.on("error", (error) => (leavesAt === undefined ? reject(error) : resolve()));
    outgoing.end(JSON.stringify(way.body(model, stream)));
  });
}

async function usageOf(
  id: string,
): Promise<{ input: number; output: number; cached: number | undefined; model: string }> {
  const line = JSON.parse(await gateway.logged(id)) as Record<string, unknown>;
  return {
    input: line["gen_ai.usage.input_tokens"] as number,
    output: line["gen_ai.usage.output_tokens"] as number,
    cached: line["gen_ai.usage.cache_read.input_tokens"] as number | undefined,
    model: line["gen_ai.response.model"] as string,
  };
}

for (const way of ways) {
  for (const stream of [false, true]) {
    for (const cached of [false, true]) {
      const name = `${way.dialect} → ${way.listener}, ${stream ? "stream" : "JSON"}, ${cached ? "cached" : "not cached"}`;
      test(`${name}, finished: the provider's counts [S8-4] [S3-4]`, async () => {
        const id = `done-${way.dialect}-${way.listener}-${stream}-${cached}`;
        await send(way, cached ? "m-cached" : "m", stream, id);
        const usage = await usageOf(id);
        assert.deepEqual([usage.input, usage.output], [COUNTS.input, COUNTS.output]);
        if (cached) assert.equal(usage.cached, COUNTS.cached);
      });
    }
  }

  test(`${way.dialect} → ${way.listener}, stream, left: what was delivered is settled, and the provider's call is ended [R16] [B4]`, async () => {
    const id = `left-${way.dialect}-${way.listener}`;
    const isClaude = way.listener === "anthropic" || (way.listener === "bedrock" && way.dialect === "messages");
    const knowsInput = isClaude || ["gemini", "vertex"].includes(way.listener);
    const delivered = TEXT.slice(0, knowsInput || way.dialect === "responses" ? 2 : 3);
    await send(way, "endless-cached", true, id, delivered.at(-1)?.trim().replace(", ", ""));
    const { input, output } = await usageOf(id);
    assert.equal(input, knowsInput ? COUNTS.input : estimatedInput(way));
    // Anthropic counts one token of output at the start of a stream.
    const counted = isClaude ? 1 : 0;
    assert.equal(output, counted + delivered.reduce((sum, text) => sum + estimateTextTokens(Buffer.from(text)), 0));
    await upstreams[Object.keys(PROVIDERS).indexOf(way.listener)]?.left;
  });
}

test("a client that leaves before the answer begins has asked its question", async () => {
  const id = "left-early";
  const silent = new Promise<void>((resolve) => {
    const outgoing = request(`${gateway.url("openai")}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-request-id": id },
      agent: false,
    });
    outgoing.on("error", () => resolve());
    outgoing.end(JSON.stringify({ model: "silent", messages }));
    void upstreams[0]?.asked("silent").then(() => outgoing.destroy());
  });
  await silent;
  const { input, output } = await usageOf(id);
  assert.deepEqual([input, output], [estimatedInput(chat("openai")), 0]);
});

test("embeddings count their input", async () => {
  const way = {
    listener: "openai",
    dialect: "embeddings",
    path: () => "/v1/embeddings",
    body: (model: string) => ({ model, input: "x" }),
  };
  await send(way, "m", false, "embeddings-1");
  const usage = await usageOf("embeddings-1");
  assert.deepEqual([usage.input, usage.output], [COUNTS.input, 0]);
});

test("counting tokens and refused calls cost nothing", async () => {
  const count = { ...anthropic("anthropic"), path: () => "/v1/messages/count_tokens" };
  await send(count, "m", false, "count-1");
  assert.deepEqual((await usageOf("count-1")).input, 0);
  await fetch(`${gateway.url("openai")}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-request-id": "refused-1" },
    body: JSON.stringify({ model: "fail-500", messages }),
  });
  assert.deepEqual((await usageOf("refused-1")).input, 0);
});

test("the metrics carry the counts under their conventional names", async () => {
  const text = await new Promise<string>((resolve, reject) => {
    get(`${gateway.adminUrl}/metrics`, (response) => {
      let body = "";
      response.on("data", (chunk) => {
        body += chunk;
      });
      response.on("end", () => resolve(body));
    }).on("error", reject);
  });
  const labels = (provider: string, model: string, operation = "chat"): string =>
    `gen_ai_operation_name="${operation}",gen_ai_provider_name="${provider}",gen_ai_response_model="${model}"`;
  const line = (name: string, inside: string): RegExp => new RegExp(`^${name}\\{${inside}[^\\n]*\\} \\d`, "m");
  assert.match(text, line("gen_ai_client_token_usage_sum", `gen_ai_token_type="input",${labels("anthropic", "m")}`));
  assert.match(text, line("gen_ai_client_token_usage_sum", `gen_ai_token_type="output",${labels("openai", "m")}`));
  for (const type of ["cache_read", "cache_write"])
    assert.match(
      text,
      line("gen_ai_client_cache_token_usage_sum", `gen_ai_token_type="${type}",${labels("anthropic", "m-cached")}`),
    );
  // Whoever adds up all types gets the tokens, each once.
  assert.deepEqual([...new Set(text.match(/(?<=gen_ai_client_token_usage_sum\{gen_ai_token_type=")\w+/g))].sort(), [
    "input",
    "output",
  ]);
  assert.match(text, line("gen_ai_client_operation_duration_seconds_count", labels("openai", "m", "embeddings")));
  // Bedrock says no model: it is the one that was asked for.
  assert.match(text, line("gen_ai_client_operation_duration_seconds_count", labels("aws.bedrock", "m")));
  assert.match(text, line("gen_ai_server_time_to_first_token_seconds_count", labels("gcp.gemini", "m")));
});
