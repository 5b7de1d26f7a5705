/**
 * Keys of LiteLLM files go to the servers that LiteLLM would send them to, wherever the file names the server and the key.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { finish } from "../../base/sliced-work.ts";
import { yamlText } from "../../base/yaml-text.ts";
import { loadConfig } from "../load/load.ts";
import { asList, asObject, type Values } from "./conversion.ts";
import { dropInvalid } from "./drop-invalid.ts";
import { importLitellm } from "./litellm.ts";
import { litellmDocument } from "./litellm-document.ts";

const KEY = "sk-generated";
/** The provider of each prefix here. LiteLLM sends keys of these prefixes to the same company. */
const PROVIDERS: Readonly<Record<string, string>> = {
  openai: "openAI",
  anthropic: "anthropic",
  gemini: "gemini",
  azure: "azure",
  bedrock: "bedrock",
  vertex_ai: "vertex",
  groq: "groq",
  mistral: "mistral",
  deepseek: "deepseek",
  together_ai: "togetherai",
  fireworks_ai: "fireworks",
  openrouter: "openrouter",
  xai: "xai",
  ollama: "ollama",
};

const prefix = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...Object.keys(PROVIDERS)) },
  fc.constantFrom(
    "hosted_vllm",
    "lm_studio",
    "litellm_proxy",
    "unknown",
    "toString",
    "__proto__",
    "OpenAI",
    "text-completion-openai",
  ),
);
const bare = fc.constantFrom(
  "m",
  "gpt-4o",
  "claude-sonnet-4-5",
  "gemini-2.5-pro",
  "llama3",
  "qwen/qwen3",
  "team*",
  "o3",
  "command-r",
);
const address = fc
  .tuple(
    fc.constantFrom("https", "http"),
    fc.constantFrom("own.example", "proxy.example:8443", "localhost:11434", "team.openai.azure.com", "api.openai.com"),
    fc.constantFrom("", "/", "/v1", "/v1/", "/sub", "/v1/messages", "/v1/chat/completions", "/openai"),
  )
  .map(([scheme, host, path]) => `${scheme}://${host}${path}`);
/** Where a file can name the server of a deployment, in LiteLLM's order of precedence. */
const addresses = fc.record(
  { api_base: address, base_url: address, credential: address, settings: address, variable: address },
  { requiredKeys: [] },
);
const generated = fc.record({
  prefix: fc.option(prefix),
  custom: fc.option(prefix, { freq: 6 }),
  bare,
  addresses,
  keyAt: fc.constantFrom("parameters", "credential", "variable"),
  unknown: fc.option(
    fc.constantFrom("watsonx_region_name", "use_litellm_proxy", "azure_ad_token", "aws_role_name", "tags"),
    { freq: 8 },
  ),
});
type Generated = typeof generated extends fc.Arbitrary<infer Value> ? Value : never;

function sourceOf({ prefix, custom, bare, addresses, keyAt, unknown }: Generated): Values {
  const first = custom ?? prefix ?? "";
  const name = prefix === null ? bare : `${prefix}/${bare}`;
  const { api_base, base_url, credential, settings, variable } = addresses;
  const hasCredential = credential !== undefined || keyAt === "credential";
  const some = (values: Values): Values =>
    Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
  return {
    credential_list: [
      {
        credential_name: "c",
        credential_values: some({ api_base: credential, api_key: keyAt === "credential" ? KEY : undefined }),
      },
    ],
    litellm_settings: some({ api_base: settings }),
    environment_variables: some({
      [`${first.toUpperCase()}_API_BASE`]: variable,
      [`${first.toUpperCase()}_API_KEY`]: keyAt === "variable" ? KEY : undefined,
    }),
    model_list: [
      {
        model_name: "case",
        litellm_params: some({
          model: name,
          custom_llm_provider: custom ?? undefined,
          api_base,
          base_url,
          api_key: keyAt === "parameters" ? KEY : undefined,
          litellm_credential_name: hasCredential ? "c" : undefined,
          vertex_project: "p",
          ...(unknown === null ? {} : { [unknown]: "x" }),
        }),
      },
      {
        model_name: "other",
        litellm_params: { model: "openai/other", api_key: "x", api_base: "https://other.example" },
      },
    ],
  };
}

function expectedAddress({ addresses }: Generated): string | undefined {
  const { api_base, base_url, credential, settings, variable } = addresses;
  return api_base ?? credential ?? base_url ?? settings ?? variable;
}

function modelOf(config: Values): Values | undefined {
  const models = asList(asObject(config.llm).models).map(asObject);
  return models.find(({ name }) => name === "case");
}

function baseUrlOf({ provider, params }: Values): string | undefined {
  const base = asObject(params).baseUrl ?? asObject(asObject(provider).openAICompatible).baseUrl;
  return base === undefined ? undefined : String(base);
}

test("the key of a model goes to the server that LiteLLM calls, or nowhere", () => {
  let converted = 0;
  fc.assert(
    fc.property(generated, (values) => {
      const { config, leftOut } = importLitellm(sourceOf(values));
      const model = modelOf(config);
      if (model === undefined) {
        assert.ok(
          leftOut.some((line) => line.includes("(case)")),
          "left out in silence",
        );
        return;
      }
      converted += 1;
      const shown = yamlText(model);
      const address = expectedAddress(values);
      const baseUrl = baseUrlOf(model);
      if (address === undefined) {
        const first = values.custom ?? values.prefix;
        const expected = first === null ? ["openAI", "anthropic", "cohere", "bedrock"] : [PROVIDERS[first]];
        assert.match(baseUrl ?? "", /^$|^\$\{AZURE_API_BASE\}|^https:\/\/api\.(?:together\.ai|deepseek\.com)\//, shown);
        assert.ok(expected.includes(String(model.provider)), shown);
        if (/^gpt|^o3/.test(values.bare) && first === null) assert.equal(model.provider, "openAI");
        if (/^claude/.test(values.bare) && first === null) assert.equal(model.provider, "anthropic");
      } else assert.equal(baseUrl === undefined ? undefined : new URL(baseUrl).origin, new URL(address).origin, shown);
      const { apiKey } = asObject(model.params);
      assert.ok(apiKey !== undefined, `the client's credential would be sent: ${shown}`);
      assert.ok(values.unknown === null || values.unknown === "tags", `${values.unknown} is ignored: ${shown}`);
    }),
    { numRuns: 5_000 },
  );
  assert.ok(converted > 1_000, `only ${converted} models were converted`);
});

test("a null in place of a merged value is absent, as for LiteLLM", () => {
  const { values } = litellmDocument({
    model_list: [
      { litellm_params: { "<<": { api_base: "https://merged.example", api_key: "merged" }, api_base: null } },
      { litellm_params: { "<<": [{ api_base: "https://first.example" }, { api_base: "https://second.example" }] } },
    ],
  });
  assert.deepEqual(values.model_list, [
    { litellm_params: { api_key: "merged" } },
    { litellm_params: { api_base: "https://first.example" } },
  ]);
});

test("a model whose address is not valid is left out as a whole", () => {
  const invalid = [
    "own.example/v1",
    "ftp://own.example",
    "https://user:password@own.example",
    "https://",
    "//own.example",
    "x y",
  ];
  for (const api_base of invalid)
    for (const name of ["anthropic/m", "gemini/m", "azure/m", "openai/m", "mistral/m", "bedrock/m", "hosted_vllm/m"]) {
      const parameters = {
        model: name,
        api_key: KEY,
        api_base,
        api_version: "2024-10-21",
        aws_region_name: "us-east-1",
      };
      const other = { model_name: "other", litellm_params: { model: "openai/other", api_key: "x" } };
      const conversion = importLitellm({ model_list: [{ model_name: "case", litellm_params: parameters }, other] });
      dropInvalid(conversion, (config, environment) => {
        const loaded = finish(loadConfig([{ file: "t", text: yamlText(config) }], environment));
        return loaded.ok ? [] : loaded.problems;
      });
      assert.ok(!yamlText(conversion.config).includes(KEY), `${name} at ${api_base}: ${yamlText(conversion.config)}`);
      assert.ok(conversion.leftOut.length > 0);
    }
});

test("every field that has no counterpart is named", () => {
  const source = {
    model_list: [
      {
        model_name: "case",
        litellm_params: { model: "openai/m", api_key: KEY, extra_headers: { a: "b" } },
        model_info: { id: "x" },
      },
    ],
    litellm_settings: { drop_params: true },
    router_settings: { num_retries: 1 },
    general_settings: { master_key: "sk-1234" },
    mcp_servers: { files: { url: "https://mcp.example/mcp" } },
  };
  const places: [name: string, place: (document: typeof source) => object | undefined][] = [
    ["the file", (document) => document],
    ["an entry", ({ model_list }) => model_list[0]],
    ["litellm_params", ({ model_list }) => model_list[0]?.litellm_params],
    ["model_info", ({ model_list }) => model_list[0]?.model_info],
    ["litellm_settings", (document) => document.litellm_settings],
    ["router_settings", (document) => document.router_settings],
    ["general_settings", (document) => document.general_settings],
    ["mcp_servers.files", (document) => document.mcp_servers.files],
  ];
  for (const [name, place] of places) {
    const document = structuredClone(source);
    Object.assign(place(document) ?? {}, { not_known_here: "x" });
    const { leftOut } = importLitellm(document);
    assert.ok(
      leftOut.some((line) => line.includes("not_known_here")),
      name,
    );
  }
  const { leftOut } = importLitellm({
    ...source,
    environment_variables: { NOT_USED: "x" },
    model_list: [...source.model_list, 1],
  });
  assert.ok(["NOT_USED", "model_list[1]"].every((text) => leftOut.some((line) => line.includes(text))));
});
