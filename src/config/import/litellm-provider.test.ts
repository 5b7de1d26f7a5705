import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Fault, litellmProvider } from "./litellm-provider.ts";

const prefix = fc.oneof(
  fc.constantFrom(
    ..."openai anthropic gemini vertex_ai bedrock azure cohere mistral ollama groq xai together_ai".split(" "),
  ),
  fc.constantFrom(
    ..."hosted_vllm lm_studio perplexity meta-llama qwen unknown replicate toString __proto__".split(" "),
  ),
  fc.string(),
);
const name = fc.oneof(
  fc.constantFrom(
    ..."gpt-4o gpt-oss-20b claude-sonnet-4-5 gemini-2.5-pro command-r llama3 * amazon.nova-lite-v1:0".split(" "),
  ),
  fc.string({ minLength: 1 }),
);
const base = fc
  .tuple(fc.webUrl(), fc.constantFrom("", "/", "/v1", "/v1/", "/v1/messages", "/chat/completions"))
  .map(([url, path]) => url.replace(/\/$/, "") + path);

test("a key goes to the server of api_base, or nowhere", () => {
  fc.assert(
    fc.property(fc.option(prefix), name, fc.boolean(), base, (given, model, isCustom, apiBase) => {
      const written = given === null || isCustom ? model : `${given}/${model}`;
      const found = litellmProvider(written, isCustom ? (given ?? undefined) : undefined, apiBase);
      if (found instanceof Fault) return;
      assert.equal(new URL(found.baseUrl ?? "").origin, new URL(apiBase).origin);
    }),
    { numRuns: 5_000 },
  );
});

test("without an api_base, only a known prefix or a known family of names selects a provider", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (given, model) => {
      const found = litellmProvider(`${given}/${model}`, undefined, undefined);
      if (!(found instanceof Fault)) assert.match(given, /^[a-z_]+$/);
      const bare = litellmProvider(model.replaceAll("/", ""), undefined, undefined);
      if (!(bare instanceof Fault)) assert.match(model, /gpt|^o\d|claude|command|embed|rerank|c4ai|\./);
    }),
    { numRuns: 5_000 },
  );
  for (const written of [
    "llama3",
    "mistral-large-latest",
    "gpt-oss-120b",
    "gemini-2.5-flash",
    "claude-opus-4-5@20251101",
    "*",
  ])
    assert.ok(litellmProvider(written, undefined, undefined) instanceof Fault, written);
});
