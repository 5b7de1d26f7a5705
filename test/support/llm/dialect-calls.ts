/**
 * A small request in every client dialect, and every provider of the `ai` backend, for tests of all pairs.
 */

export interface DialectCall {
  readonly dialect: string;
  path(model: string): string;
  body(model: string): Record<string, unknown>;
}

const messages = [{ role: "user", content: "hi" }];
const parts = { contents: [{ role: "user", parts: [{ text: "hi" }] }] };
const blocks = { messages: [{ role: "user", content: [{ text: "hi" }] }] };
const claude = { anthropic_version: "bedrock-2023-05-31", max_tokens: 9, messages };
const inPath = (model: string): string => encodeURIComponent(model);

export const DIALECT_CALLS: readonly DialectCall[] = [
  { dialect: "chat", path: () => "/v1/chat/completions", body: (model) => ({ model, messages }) },
  {
    dialect: "chat stream",
    path: () => "/v1/chat/completions",
    body: (model) => ({ model, messages, stream: true }),
  },
  { dialect: "responses", path: () => "/v1/responses", body: (model) => ({ model, input: "hi" }) },
  { dialect: "embeddings", path: () => "/v1/embeddings", body: (model) => ({ model, input: "hi" }) },
  { dialect: "messages", path: () => "/v1/messages", body: (model) => ({ model, max_tokens: 9, messages }) },
  {
    dialect: "messages stream",
    path: () => "/v1/messages",
    body: (model) => ({ model, max_tokens: 9, messages, stream: true }),
  },
  {
    dialect: "generateContent",
    path: (model) => `/v1beta/models/${model}:generateContent?key=a-key`,
    body: () => parts,
  },
  {
    dialect: "generateContent stream",
    path: (model) => `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
    body: () => parts,
  },
  { dialect: "converse", path: (model) => `/model/${inPath(model)}/converse`, body: () => blocks },
  { dialect: "converse stream", path: (model) => `/model/${inPath(model)}/converse-stream`, body: () => blocks },
  { dialect: "invoke", path: (model) => `/model/${inPath(model)}/invoke`, body: () => claude },
  {
    dialect: "invoke stream",
    path: (model) => `/model/${inPath(model)}/invoke-with-response-stream`,
    body: () => claude,
  },
  { dialect: "moderations", path: () => "/v1/moderations", body: (model) => ({ model, input: "hi" }) },
];

const AWS = "{ aws: { accessKeyId: AKIDEXAMPLE, secretAccessKey: wJalrXUtnFEMI, sessionToken: aSessionToken1 } }";

export const PROVIDERS: readonly { name: string; provider: string; auth: string; model: string }[] = [
  { name: "openai", provider: "{ openAI: {} }", auth: "{ key: sk-openai-key-1 }", model: "gpt-x" },
  { name: "renamed", provider: "{ openAI: { model: other } }", auth: "{ key: sk-openai-key-2 }", model: "gpt-x" },
  { name: "anthropic", provider: "{ anthropic: {} }", auth: "{ key: sk-ant-key-123 }", model: "claude-x" },
  { name: "gemini", provider: "{ gemini: {} }", auth: "{ key: AIza-key-1234567 }", model: "gemini-x" },
  { name: "vertex", provider: "{ vertex: { projectId: p } }", auth: "{ key: ya29.token-123 }", model: "gemini-x" },
  {
    name: "vertex-claude",
    provider: "{ vertex: { projectId: p } }",
    auth: "{ key: ya29.token-456 }",
    model: "claude-x",
  },
  { name: "bedrock", provider: "{ bedrock: { region: eu-west-1 } }", auth: AWS, model: "amazon.nova-x" },
  { name: "bedrock-claude", provider: "{ bedrock: { region: eu-west-1 } }", auth: AWS, model: "anthropic.claude-x" },
  { name: "azure", provider: "{ azure: { resourceName: r } }", auth: "{ key: azure-key-12345 }", model: "gpt-x" },
  {
    name: "azure-dated",
    provider: "{ azure: { resourceName: r, apiVersion: 2024-10-21 } }",
    auth: "{ key: azure-key-67890 }",
    model: "gpt-x",
  },
  {
    name: "compatible",
    provider: '{ openAICompatible: { baseUrl: "http://x.test/api/v1" } }',
    auth: "{ key: compatible-key }",
    model: "any-x",
  },
];
