/**
 * OpenAI's embeddings with the real SDK to providers with forms of their own, which refuse what they do not know: Titan, Cohere
 * and Nova on Bedrock, Gemini, Vertex. Vectors, usage and charges are those of the provider.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { startGateway, type TestGateway } from "../support/gateway.ts";

interface Asked {
  readonly path: string;
  readonly body: Record<string, unknown>;
}

let gateway: TestGateway;
const asked: Asked[] = [];
const VECTOR = [0.5, -0.25, 2];

/** What the real services answer; a member that they do not know is a 400. */
function answer(path: string, body: Record<string, unknown>): { status?: number; headers?: object; body: unknown } {
  const only = (...names: string[]): boolean => Object.keys(body).every((name) => names.includes(name));
  const refused = { status: 400, body: { message: `Malformed input request: ${JSON.stringify(body)}` } };
  if (path.includes("titan")) {
    if (!only("inputText", "dimensions", "normalize") || typeof body.inputText !== "string") return refused;
    return { body: { embedding: VECTOR, inputTextTokenCount: 7 } };
  }
  if (path.includes("cohere")) {
    if (!only("texts", "input_type", "truncate", "embedding_types", "output_dimension")) return refused;
    const texts = body.texts as string[];
    const headers = { "x-amzn-bedrock-input-token-count": String(5 * texts.length) };
    const float = texts.map(() => VECTOR);
    const embeddings = body.embedding_types === undefined ? float : { float };
    return { headers, body: { id: "x", texts, embeddings, response_type: "embeddings_by_type" } };
  }
  if (path.includes("nova")) {
    if (!only("taskType", "singleEmbeddingParams", "schemaVersion")) return refused;
    return { body: { embeddings: [{ embeddingType: "TEXT", embedding: VECTOR }] } };
  }
  if (path.endsWith(":batchEmbedContents")) {
    if (!only("requests")) return refused;
    return { body: { embeddings: (body.requests as object[]).map(() => ({ values: VECTOR })) } };
  }
  if (path.endsWith(":predict")) {
    if (!only("instances", "parameters")) return refused;
    const embeddings = { values: VECTOR, statistics: { token_count: 4, truncated: false } };
    return { body: { predictions: (body.instances as object[]).map(() => ({ embeddings })) } };
  }
  return { status: 404, body: { message: "no such path" } };
}

const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on("data", (chunk: Buffer) => chunks.push(chunk));
  req.on("end", () => {
    const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
    const path = decodeURIComponent(req.url ?? "");
    asked.push({ path, body });
    const { status = 200, headers = {}, body: said } = answer(path, body);
    res.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(said));
  });
});

before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const aws = `provider: bedrock, params: { awsRegion: us-east-1, awsAccessKeyId: A, awsSecretAccessKey: s, hostOverride: "${host}"`;
  gateway = await startGateway(`
config: { logging: { format: json } }
llm:
  port: 0
  models:
    - { name: titan, ${aws}, model: "amazon.titan-embed-text-v2:0" } }
    - { name: titan-1, ${aws}, model: amazon.titan-embed-text-v1 } }
    - { name: cohere, ${aws}, model: cohere.embed-english-v3 } }
    - { name: cohere-4, ${aws}, model: "us.cohere.embed-v4:0" } }
    - { name: nova, ${aws}, model: "amazon.nova-2-multimodal-embeddings-v1:0" } }
    - { name: llama, ${aws}, model: meta.llama3 } }
    - { name: gemini, provider: gemini, params: { model: gemini-embedding-001, apiKey: k, hostOverride: "${host}" } }
    - { name: vertex, provider: vertex, params: { model: text-embedding-005, vertexProject: p, apiKey: k, hostOverride: "${host}" } }
    - { name: claude, provider: anthropic, params: { model: claude-opus-4-1, apiKey: k, hostOverride: "${host}" } }
  policies: { rateLimit: { local: [{ tokens: 100000, unit: Hours }] } }
`);
});
after(async () => {
  await gateway?.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const client = () => new OpenAI({ baseURL: `${gateway.url()}/v1`, apiKey: "x", maxRetries: 0 });
const last = (): Asked => asked.at(-1) as Asked;
type Params = OpenAI.EmbeddingCreateParams;
const refusal = async (params: Params): Promise<string> => {
  const before = asked.length;
  const error = await client()
    .embeddings.create(params)
    .then(
      () => new Error("not refused"),
      (thrown: Error) => thrown,
    );
  assert.equal(asked.length, before, "the provider was asked");
  return error.message;
};

const bedrock = (model: string) => `/model/${model}/invoke`;
const CASES: [
  model: string,
  input: string | string[],
  more: object,
  path: string,
  body: object,
  tokens: number | undefined,
][] = [
  ["titan", "a", {}, bedrock("amazon.titan-embed-text-v2:0"), { inputText: "a" }, 7],
  [
    "titan",
    ["a"],
    { dimensions: 256 },
    bedrock("amazon.titan-embed-text-v2:0"),
    { inputText: "a", dimensions: 256 },
    7,
  ],
  [
    "cohere",
    ["a", "b"],
    { input_type: "search_query" },
    bedrock("cohere.embed-english-v3"),
    { texts: ["a", "b"], input_type: "search_query", embedding_types: ["float"] },
    10,
  ],
  [
    "cohere-4",
    "a",
    { dimensions: 512 },
    bedrock("us.cohere.embed-v4:0"),
    { texts: ["a"], input_type: "search_document", embedding_types: ["float"], output_dimension: 512 },
    5,
  ],
  [
    "nova",
    "a",
    {},
    bedrock("amazon.nova-2-multimodal-embeddings-v1:0"),
    {
      taskType: "SINGLE_EMBEDDING",
      singleEmbeddingParams: { embeddingPurpose: "GENERIC_INDEX", text: { truncationMode: "END", value: "a" } },
    },
    undefined,
  ],
  [
    "gemini",
    ["a", "b"],
    { dimensions: 768, user: "u" },
    "/v1beta/models/gemini-embedding-001:batchEmbedContents",
    {
      requests: ["a", "b"].map((text) => ({
        model: "models/gemini-embedding-001",
        content: { parts: [{ text }] },
        outputDimensionality: 768,
      })),
    },
    undefined,
  ],
  [
    "vertex",
    ["a", "b", "c"],
    { dimensions: 128, task_type: "RETRIEVAL_QUERY" },
    "/v1/projects/p/locations/global/publishers/google/models/text-embedding-005:predict",
    {
      instances: ["a", "b", "c"].map((content) => ({ content, task_type: "RETRIEVAL_QUERY" })),
      parameters: { outputDimensionality: 128 },
    },
    12,
  ],
];

for (const [i, [model, input, more, path, body, tokens]] of CASES.entries())
  for (const encoding of ["float", "base64", undefined] as const)
    test(`openai SDK → ${model} ${JSON.stringify(more)}, ${encoding ?? "the SDK's own encoding"}`, async () => {
      const id = `embed-${i}-${encoding}`;
      const params = { model, input, ...more, ...(encoding === undefined ? {} : { encoding_format: encoding }) };
      const made = await client().embeddings.create(params as Params, { headers: { "x-request-id": id } });
      assert.deepEqual(last(), { path, body });
      const { data, usage } = made;
      assert.equal(data.length, typeof input === "string" ? 1 : input.length);
      for (const [index, one] of data.entries()) {
        assert.equal(one.index, index);
        const vector = encoding === "base64" ? decoded(String(one.embedding)) : one.embedding;
        assert.deepEqual(vector, VECTOR);
      }
      const line = JSON.parse(await gateway.logged(`"id":"${id}"`)) as Record<string, unknown>;
      const counted = line["gen_ai.usage.input_tokens"] as number;
      if (tokens === undefined) assert.ok(counted > 0, "an estimate");
      else assert.deepEqual([counted, usage.prompt_tokens, usage.total_tokens], [tokens, tokens, tokens]);
      assert.equal(line["gen_ai.usage.output_tokens"], 0);
    });

function decoded(base64: string): number[] {
  const bytes = Buffer.from(base64, "base64");
  return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(i * 4));
}

test("what a form cannot say is refused by name, and nobody is asked", async () => {
  assert.match(await refusal({ model: "titan", input: [1, 2, 3] }), /input: a list of tokens is not supported/);
  assert.match(await refusal({ model: "titan", input: Array(2049).fill("a") }), /input: a list has at most 2048 texts/);
  assert.match(await refusal({ model: "titan-1", input: "a", dimensions: 256 }), /dimensions: is not supported/);
  assert.match(await refusal({ model: "cohere", input: [1, 2, 3] }), /input: a list of tokens is not supported/);
  assert.match(await refusal({ model: "cohere", input: "a", dimensions: 64 }), /dimensions/);
  assert.match(await refusal({ model: "gemini", input: [] }), /input: expected/);
  assert.match(await refusal({ model: "llama", input: "a" }), /model: is no model for embeddings/);
  assert.match(await refusal({ model: "claude", input: "a" }), /cannot be asked in the embeddings format/);
  assert.match(await refusal({ model: "titan", input: "a", encoding_format: "hex" as "float" }), /encoding_format/);
});

test("a member that the provider does not have is left out and named", async () => {
  const { response } = await client()
    .embeddings.create({ model: "titan", input: "a", shade: 3 } as Params)
    .withResponse();
  assert.equal(response.headers.get("x-gateway-dropped"), "shade");
});
