import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { quickUsage } from "./response-usage.ts";

const quick = (text: string) => quickUsage(Buffer.from(text));

test("finds usage and model of an ordinary response", () => {
  const answer = {
    id: "1",
    model: "gpt-x",
    choices: [{ message: { content: "Hi" } }],
    usage: { total_tokens: 3, details: { cached: 1 } },
    service_tier: "default",
  };
  assert.deepEqual(quick(JSON.stringify(answer)), { usage: answer.usage, model: "gpt-x" });
  assert.deepEqual(quick(`${JSON.stringify(answer)}\n`), { usage: answer.usage, model: "gpt-x" });
});

for (const [name, text] of [
  ["usage in an inner object", '{"a":{"usage":{"total_tokens":1}}}'],
  ["usage in a list", '{"a":[{"usage":{"total_tokens":1}}]}'],
  ["usage before other objects", '{"usage":{"total_tokens":1},"choices":[]}'],
  ["usage that is null", '{"usage":null}'],
  ["an answer that was cut", '{"model":"a","usage":{"total_tokens":1}'],
  ["a model in an inner object", '{"a":{"model":"x"},"usage":{"total_tokens":1}}'],
  ["a model behind the usage", '{"usage":{"total_tokens":1},"model":"x"}'],
  ["a model with escapes", '{"model":"a\\"b","usage":{"total_tokens":1}}'],
  ["something behind the answer", '{"usage":{"total_tokens":1}} x'],
  ["a list", '[{"usage":{"total_tokens":1}}]'],
] as const) {
  test(`leaves ${name} to the parser`, () => assert.equal(quick(text), undefined));
}

test("always agrees with the parser", () => {
  const key = fc.oneof(fc.constantFrom("usage", "model", "a", '"usage":', "usage\\"), fc.string());
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom('"usage":{"total_tokens":9}', '{"usage":{}}', "x"),
      fc.integer(),
      fc.constant(null),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(key, tie("value"), { maxKeys: 4 }),
    ),
  }));
  fc.assert(
    fc.property(fc.dictionary(key, value, { maxKeys: 6 }), (answer) => {
      const found = quick(JSON.stringify(answer));
      if (found === undefined) return;
      const parsed = JSON.parse(JSON.stringify(answer));
      assert.deepEqual(found.usage, parsed.usage);
      assert.equal(found.model, parsed.model);
    }),
    { numRuns: 2000 },
  );
});
