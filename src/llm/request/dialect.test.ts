import assert from "node:assert/strict";
import { test } from "node:test";
import { detectDialect, parseModelsPath } from "./dialect.ts";

const cases: [path: string, format: string, model?: string, stream?: boolean][] = [
  ["/v1/chat/completions", "chat"],
  ["/team-a/v1/chat/completions", "chat"],
  ["/openai/deployments/gpt-4o/chat/completions", "chat"],
  ["/", "chat"],
  ["/anything/at/all", "chat"],
  ["/v1/responses", "responses"],
  ["/v1/embeddings", "embeddings"],
  ["/v1/messages", "messages"],
  ["/anthropic/v1/messages", "messages"],
  ["/v1/completions", "opaque"],
  ["/v1/images/generations", "opaque"],
  ["/v1beta/models/gemini-2.5-pro:generateContent", "generateContent", "gemini-2.5-pro", false],
  ["/v1beta/models/gemini-2.5-pro:streamGenerateContent", "generateContent", "gemini-2.5-pro", true],
  ["/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "generateContent", "g", false],
  ["/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:streamRawPredict", "messages", "claude-x", true],
  ["/model/anthropic.claude-v2%3A1/converse", "converse", "anthropic.claude-v2:1", false],
  ["/model/amazon.nova/converse-stream", "converse", "amazon.nova", true],
  ["/model/x/invoke-with-response-stream", "invoke", "x", true],
  ["/model/%zz/invoke", "invoke", "%zz", false],
];
for (const [path, format, model, stream] of cases) {
  test(`${path} uses the ${format} format`, () => {
    const dialect = detectDialect(path);
    assert.deepEqual([dialect.format, dialect.pathModel, dialect.pathStream], [format, model, stream]);
  });
}

test("requests that count tokens are recognized", () => {
  for (const path of [
    "/v1/messages/count_tokens",
    "/v1beta/models/g:countTokens",
    "/model/x/count-tokens",
    "/v1/responses/input_tokens",
  ]) {
    assert.equal(detectDialect(path).operation, "count", path);
  }
});

test("the list of models is found at its usual paths only", () => {
  assert.deepEqual(parseModelsPath("/v1/models"), { name: undefined });
  assert.deepEqual(parseModelsPath("/models"), { name: undefined });
  assert.deepEqual(parseModelsPath("/base/v1/models/a%2Fb"), { name: "a/b" });
  assert.equal(parseModelsPath("/v1/chat/completions"), undefined);
  assert.equal(parseModelsPath("/supermodels"), undefined);
});

const stored: [path: string, suffix: string | undefined][] = [
  ["/v1/files", "/files"],
  ["/openai/v1/files/f-1/content", "/files/f-1/content"],
  ["/v1/batches", "/batches"],
  ["/v1/threads/t/messages", "/threads/t/messages"],
  ["/v1/responses/r-1/cancel", "/responses/r-1/cancel"],
  ["/v1/messages/batches", "/messages/batches"],
  ["/v1/messages", undefined],
  ["/files", undefined],
  ["/v1/filesystem", undefined],
];
for (const [path, suffix] of stored) {
  test(`${path} is ${suffix === undefined ? "a question to a model" : "about stored objects"}`, () => {
    const dialect = detectDialect(path);
    assert.equal(dialect.operation === "objects", suffix !== undefined);
    if (suffix !== undefined) assert.deepEqual([dialect.format, dialect.suffix], ["opaque", suffix]);
    else assert.notEqual(dialect.format, "opaque");
  });
}
