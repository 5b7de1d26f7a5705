import assert from "node:assert/strict";
import { test } from "node:test";
import { testEnv } from "../../../test/support/exchange.ts";
import { ai } from "./policy.ts";

const compiled = (guard: object, isConfined = false) =>
  ai.compile(ai.schema.parse({ promptGuard: { request: [guard] } }), {
    ...testEnv,
    machine: isConfined ? undefined : testEnv.machine,
  });

const DEFAULTS: object[] = [
  { bedrockGuardrails: { guardrailIdentifier: "g", guardrailVersion: "1", region: "us-west-2" } },
  { googleModelArmor: { templateId: "t", projectId: "p" } },
  { azureContentSafety: { endpoint: "https://name.cognitiveservices.azure.com", detectJailbreak: {} } },
];
for (const guard of DEFAULTS.slice(0, 2))
  test(`${Object.keys(guard).join()} uses the machine's credentials by default, but not for a cluster`, () => {
    assert.ok(compiled(guard).admit?.call);
    assert.throws(() => compiled(guard, true), /a policy of a cluster cannot use credentials of this machine/);
  });

test("azureContentSafety of a cluster needs a credential of its own", () => {
  assert.throws(() => compiled(DEFAULTS[2] ?? {}, true), /set `auth`/);
});

for (const guard of [
  { openAIModeration: {} },
  { openAIModeration: { auth: { key: "k" } }, regex: { rules: [{ builtin: "email" }] } },
  { openAIModeration: { auth: { key: "k" } }, mode: "shadow" },
  { azureContentSafety: { endpoint: "https://a" } },
  { azureContentSafety: { endpoint: "a", analyzeText: {} } },
  { bedrockGuardrails: { guardrailIdentifier: "g?x", guardrailVersion: "1", region: "us-west-2" } },
  { bedrockGuardrails: { guardrailIdentifier: "g", guardrailVersion: "newest", region: "us-west-2" } },
])
  test(`rejects the guard ${JSON.stringify(guard)}`, () => {
    assert.equal(ai.schema.safeParse({ promptGuard: { request: [guard] } }).success, false);
  });

test("the client's credential is never sent to a guard", () => {
  assert.throws(
    () => compiled({ openAIModeration: { auth: { passthrough: {} } } }),
    /cannot use the client's credential/,
  );
});
