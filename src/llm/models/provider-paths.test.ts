import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { azure, bedrock, customProvider, gemini, ModelNameError, type Provider, vertex } from "./providers.ts";

/** Each with where its models are, and how many segments a model may be. */
const PROVIDERS: readonly [provider: Provider, before: string, mayHaveSlashes: boolean][] = [
  [gemini(), "/v1beta/models/", true],
  [vertex({ projectId: "p", region: "us" }), "/v1/projects/p/locations/us/publishers/", false],
  [bedrock("us"), "/model/", true],
  [azure({ resourceName: "r", resourceType: "openAI", apiVersion: "2024-10-21" }), "/openai/deployments/", false],
  [
    customProvider({
      baseUrl: "http://x.test/api",
      keyHeader: "authorization",
      streamUsage: true,
      formats: [{ type: "completions", path: "/models/{model}/chat" }],
    }),
    "/api/models/",
    false,
  ],
];

const PIECES = [
  "..", ".", "/", "\\", "%2e", "%2F", "%5c", "%252e", ";", "%3b", " ", ":", "@", "a", "gpt-4", "arn:", "claude", "models", "\n", "%00", "%c0%af", "é",
]; // biome-ignore format: a table

test("no model name leads a provider's path out of its place, however often it is decoded [L17]", () => {
  const models = fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 6 }).map((all) => all.join(""));
  let sent = 0;
  fc.assert(
    fc.property(
      fc.constantFrom(...PROVIDERS),
      models,
      fc.boolean(),
      ([provider, before, mayHaveSlashes], model, stream) => {
        const format = provider.upstreamFormat("chat", model);
        if (format === undefined) return;
        const call = { format, suffix: "/chat/completions", model, stream, counts: false, query: "" };
        let path: string;
        try {
          path = provider.path(call, provider.basePath);
        } catch (error) {
          assert.ok(error instanceof ModelNameError, String(error));
          return;
        }
        sent += 1;
        const plain = provider.path({ ...call, model: model.startsWith("claude") ? "claude" : "m" }, provider.basePath);
        let reading = path.replace(/\?.*$/, "");
        for (let round = 0; round < 6; round++) {
          assert.ok(reading.startsWith(before), `${JSON.stringify(model)} is read as ${reading}`);
          const segments = reading.split(/[/\\]/);
          assert.ok(
            segments.slice(1).every((segment) => !/^\.{0,2} *$/.test(segment.replace(/;.*$/, ""))),
            `${JSON.stringify(model)} is read as ${reading}`,
          );
          if (!mayHaveSlashes) assert.equal(segments.length, plain.split("/").length, reading);
          reading = reading.replace(/%([0-7][0-9a-f])/gi, (_, hex: string) =>
            String.fromCharCode(Number.parseInt(hex, 16)),
          );
        }
      },
    ),
    { numRuns: 4_000 },
  );
  assert.ok(sent > 300, `only ${sent} paths were made`);
});

test("an ARN keeps its slashes encoded at Bedrock, and other names have none", () => {
  const call = { format: "converse", suffix: "/x", stream: false, counts: false, query: "" } as const;
  const arn = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude";
  assert.equal(
    bedrock("us").path({ ...call, model: arn }, ""),
    "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude/converse",
  );
  assert.throws(() => bedrock("us").path({ ...call, model: "a/b" }, ""), ModelNameError);
});
