import assert from "node:assert/strict";
import { test } from "node:test";
import { createMetrics } from "../../record/log/metrics.ts";
import { createLlmMetrics } from "../settlement.ts";

test("a provider that invents a model in each response creates few and short series", () => {
  const metrics = createMetrics();
  const { record } = createLlmMetrics(metrics);
  for (let i = 0; i < 5_000; i++)
    for (const [provider, model] of [
      ["hostile", i % 2 === 0 ? `model-${i}` : "m".repeat(i)],
      ["honest", `model-${i % 5}`],
    ] as const)
      record({ provider, responseModel: model, inputTokens: 1, outputTokens: 1, cost: 1 } as never, {
        durationMs: 1,
        firstByteMs: 1,
        errorType: i % 3 === 0 ? "timeout" : undefined,
        operation: "chat",
      });
  const models = (provider: string): Set<string | undefined> =>
    new Set(
      metrics
        .collect()
        .flatMap(({ points }) => points)
        .filter(({ labels }) => labels.gen_ai_provider_name === provider)
        .map(({ labels }) => labels.gen_ai_response_model),
    );
  assert.equal(models("hostile").size, 201);
  assert.ok([...models("hostile")].every((model = "") => model.length <= 200));
  assert.equal(models("honest").size, 5);
});
