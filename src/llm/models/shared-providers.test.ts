import assert from "node:assert/strict";
import { test } from "node:test";
import { aiSchema } from "./schema.ts";

const PROVIDER = { name: "main", provider: "openAI", params: { apiKey: "k" } };

function problemsOf(config: object): string[] {
  const parsed = aiSchema.safeParse(config);
  return parsed.success ? [] : parsed.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
}

test("models refer to shared providers by name", () => {
  const models = [{ name: "a", provider: { reference: "main" } }];
  assert.deepEqual(problemsOf({ providers: [PROVIDER], models }), []);
});

for (const [name, config, problem] of [
  [
    "an unknown reference",
    { providers: [PROVIDER], models: [{ name: "a", provider: { reference: "mian" } }] },
    'models.0.provider.reference: no entry in `providers` is named "mian", did you mean "main"?',
  ],
  [
    "a name that is used twice",
    { providers: [PROVIDER, PROVIDER], models: [{ name: "a", provider: "demo" }] },
    'providers.1.name: the name "main" is used twice',
  ],
  [
    "shared providers without models",
    { providers: [PROVIDER], provider: { demo: {} } },
    "providers: only entries of `models` refer to `providers`",
  ],
] as const)
  test(`${name} is rejected`, () => {
    assert.deepEqual(problemsOf(config), [problem]);
  });

test("a reference beside another provider, and a reference of a shared provider, are rejected", () => {
  const models = [{ name: "a", provider: { reference: "main", demo: {} } }];
  assert.notDeepEqual(problemsOf({ providers: [PROVIDER], models }), []);
  const chained = { name: "other", provider: { reference: "main" } };
  assert.notDeepEqual(problemsOf({ providers: [PROVIDER, chained], models: [{ name: "a", provider: "demo" }] }), []);
});
