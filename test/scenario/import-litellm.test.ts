/**
 * Imports models of LiteLLM and calls them: the gateway sends the same key to the same server as LiteLLM, or the import
 * leaves the model out. `test/support/import/litellm-requests.json` has what LiteLLM sends (`record-litellm.py`).
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { yamlText } from "../../src/base/yaml-text.ts";
import { importLitellm } from "../../src/config/import/litellm.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

interface Recorded {
  readonly written: string;
  readonly provider?: string;
  readonly base?: string;
  readonly sent: { host?: string; path?: string; keys?: string[]; model?: string } | null;
}

const KEY = "sk-recorded";
const RECORDED: readonly Recorded[] = JSON.parse(
  readFileSync(join(process.cwd(), "test/support/import/litellm-requests.json"), "utf8"),
);

/** The providers here whose default address belongs to the same company as LiteLLM's. */
const HOSTS: Readonly<Record<string, string>> = {
  "api.openai.com": "openAI",
  "api.anthropic.com": "anthropic",
  "generativelanguage.googleapis.com": "gemini",
  "inference.baseten.co": "baseten",
  "api.cerebras.ai": "cerebras",
  "api.cohere.com": "cohere",
  "api.deepinfra.com": "deepinfra",
  "api.deepseek.com": "deepseek",
  "api.fireworks.ai": "fireworks",
  "api.groq.com": "groq",
  "huggingface.co": "huggingface",
  "api.mistral.ai": "mistral",
  "openrouter.ai": "openrouter",
  "api.together.ai": "togetherai",
  "api.x.ai": "xai",
  "bedrock-runtime.us-east-1.amazonaws.com": "bedrock",
};

/** LiteLLM calls these although the import leaves them out. */
function isLeftOut({ written, base, provider }: Recorded): boolean {
  const prefix = written.includes("/") ? written.split("/", 1)[0] : provider;
  // Without an address, the gateway does not know the provider.
  if (base === undefined && prefix !== undefined) return true;
  // LiteLLM finds the provider in each request.
  if (written === "*") return true;
  const other = "cohere cohere_chat replicate sagemaker snowflake cloudflare minimax watsonx vertex_ai";
  return prefix === undefined ? /^(?:command|embed)-/.test(written) : other.split(" ").includes(prefix);
}

/** LiteLLM rejects these names; the provider of the import is that of the prefix. */
const TAKEN_ALTHOUGH_REJECTED = /^(?:vertex_ai|bedrock|azure|ollama|ollama_chat|llamafile|databricks)\//;

interface Imported {
  readonly provider: string | { openAICompatible: { baseUrl: string } };
  readonly params: Readonly<Record<string, unknown>>;
}

function imported({ written, provider, base }: Recorded, origin: string): Imported | undefined {
  const parameters: Record<string, unknown> = { model: written, api_key: KEY };
  if (provider !== undefined) parameters.custom_llm_provider = provider;
  if (base !== undefined) parameters.api_base = `${origin}${base}`;
  if (written.startsWith("azure/")) parameters.api_version = "2024-06-01";
  const document = {
    model_list: [
      { model_name: "case", litellm_params: parameters },
      { model_name: "other", litellm_params: { model: "openai/other", api_key: "x" } },
    ],
  };
  const { config, leftOut } = importLitellm(document);
  const { models } = config.llm as { models: (Imported & { name: string })[] };
  const found = models.find(({ name }) => name === "case");
  assert.equal(found === undefined, leftOut.length > 0, `${written} is left out in silence, or taken with a loss`);
  return found;
}

const label = ({ written, provider, base }: Recorded): string =>
  `${written}${provider === undefined ? "" : ` (${provider})`} at ${base === undefined ? "its default" : `"${base}"`}`;

test("without an api_base, the provider is the one that LiteLLM calls", () => {
  for (const one of RECORDED.filter(({ base }) => base === undefined)) {
    const model = imported(one, "");
    const { provider } = model ?? {};
    if (one.sent === null) {
      const isOk = model === undefined || TAKEN_ALTHOUGH_REJECTED.test(one.written);
      assert.ok(isOk, `${label(one)}: LiteLLM rejects it, but the key goes to ${JSON.stringify(provider)}`);
    } else if (model !== undefined) assert.equal(provider, HOSTS[one.sent.host ?? ""], label(one));
    else assert.ok(isLeftOut(one), `${label(one)} is left out`);
  }
});

test("with an api_base, the server gets the path, the key, and the model that LiteLLM sends", async (t) => {
  const received: { url: string; keys: string[]; model: unknown }[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const keys = Object.keys(request.headers).filter((name) => String(request.headers[name]).includes(KEY));
      received.push({ url: request.url ?? "", keys: keys.sort(), model: JSON.parse(text).model });
      response.writeHead(401, { "content-type": "application/json" }).end("{}");
    });
  });
  const cases = RECORDED.filter(({ base }) => base !== undefined).map((one) => ({
    one,
    model: imported(one, `http://${host}`),
  }));
  const models = cases.flatMap(({ model }, i) => (model === undefined ? [] : [{ ...model, name: `case-${i}` }]));
  const gateway = await gatewayFor(t, yamlText({ llm: { port: 0, models } }), {
    environment: { AWS_REGION: "us-east-1" },
  });
  let same = 0;
  for (const [i, { one, model }] of cases.entries()) {
    if (model === undefined) {
      assert.ok(one.sent === null || isLeftOut(one), `${label(one)} is left out`);
      continue;
    }
    received.length = 0;
    const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ model: `case-${i}`, messages: [{ role: "user", content: "x" }], max_tokens: 5 }),
    });
    await response.arrayBuffer();
    const [got] = received;
    assert.ok(got, `${label(one)}: nothing arrived, the answer is ${response.status}`);
    if (one.sent === null) {
      assert.match(one.written, TAKEN_ALTHOUGH_REJECTED, `${label(one)}: LiteLLM rejects it`);
      continue;
    }
    // The path is compared where LiteLLM uses the same API.
    if (one.sent.path !== undefined && !/^(?:ollama|ollama_chat|huggingface)\//.test(one.written)) {
      const expected = one.sent.path
        .replaceAll("//", "/")
        .replace(/\/chat\/completions\/chat\/completions$/, "/chat/completions");
      // LiteLLM calls `/v1//v1/chat/completions` and `/v1/chat/completions/v1`, which Mistral does not have.
      if (!one.written.startsWith("mistral/") || !/^\/v1\/./.test(`${one.base}.`))
        assert.equal(got.url, expected, label(one));
      if (!/bedrock|^[a-z.]+\.(?:anthropic|llama|nova)|^(?:anthropic|meta|amazon|us)\./.test(one.written))
        assert.deepEqual(got.keys, one.sent.keys, label(one));
      if (one.sent.model !== undefined && !one.written.startsWith("gemini/"))
        assert.equal(got.model, one.sent.model, label(one));
      same += 1;
    }
  }
  assert.ok(same > 300, `only ${same} were compared`);
});
