import assert from "node:assert/strict";
import { test } from "node:test";
import { testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { compileModels } from "./compile-models.ts";
import { type AiConfig, aiSchema } from "./schema.ts";
import { Health } from "./target.ts";

const env: BackendEnv = {
  ...testEnv,
  name: "route0/backend0",
  tls: undefined,
  trustedHosts: [],
  requiresCredential: false,
};
const parse = (config: unknown): AiConfig => aiSchema.parse(config);
const demo = { provider: { demo: {} } };

function tableOf(models: unknown[], virtualModels: unknown[] = []) {
  return compileModels(parse({ models, virtualModels }), env);
}
const model = (name: string, extra = {}) => ({ name, provider: "demo", ...extra });

test("exact names come before patterns, patterns in the order of the file", () => {
  const table = tableOf([
    model("*"),
    model("gpt-*", { params: { model: "never" } }),
    model("gpt-4", { params: { model: "exact" } }),
  ]);
  assert.equal(table.candidates("gpt-4")?.[0]?.model, "exact");
  assert.equal(table.candidates("gpt-5")?.[0]?.model, "gpt-5");
  assert.equal(table.candidates("other")?.[0]?.model, "other");
});

const patterns: [pattern: string, params: string | undefined, asked: string, model: string | undefined][] = [
  ["team/*", "*", "team/llama", "llama"],
  ["team/*", undefined, "team/llama", "team/llama"],
  ["*-fast", "base-*", "x-fast", "base-x"],
  ["a*a", "*", "aa", ""],
  ["a*a", "*", "a", undefined],
  ["gpt-*", undefined, "gpt", undefined],
];
for (const [pattern, params, asked, expected] of patterns) {
  test(`${pattern} with ${params ?? "no model"} makes ${expected ?? "nothing"} of ${asked}`, () => {
    const table = tableOf([model(pattern, params === undefined ? {} : { params: { model: params } })]);
    assert.equal(table.candidates(asked)?.[0]?.model, expected);
  });
}

test("an alias asks the provider for the model's own name", () => {
  assert.equal(tableOf([model("fast", { aliases: ["quick"] })]).candidates("quick")?.[0]?.model, "fast");
});

test("weights are shared out evenly, without chance", () => {
  const table = tableOf(
    [model("a"), model("b")],
    [
      {
        name: "v",
        routing: {
          weighted: {
            targets: [
              { model: "a", weight: 3 },
              { model: "b", weight: 1 },
            ],
          },
        },
      },
    ],
  );
  const picks = Array.from({ length: 8 }, () => table.candidates("v")?.[0]?.model).join("");
  assert.equal(picks.split("a").length - 1, 6);
  assert.ok(!picks.includes("bb"));
});

test("priorities are tried in order, ejected targets last", () => {
  const table = tableOf(
    [model("a"), model("b"), model("x/*", { params: { model: "*" } })],
    [
      {
        name: "v",
        routing: {
          failover: {
            targets: [
              { model: "b", priority: 2 },
              { model: "a", priority: 1 },
              { model: "x/y", priority: 3 },
            ],
          },
        },
      },
    ],
  );
  assert.deepEqual(
    table.candidates("v")?.map((one) => one.model),
    ["a", "b", "y"],
  );
  table.candidates("v")?.[0]?.target.health.recordFailure(undefined);
  assert.deepEqual(
    table.candidates("v")?.map((one) => one.model),
    ["b", "y", "a"],
  );
});

const wrong: [name: string, config: unknown, message: RegExp][] = [
  [
    "a virtual model that names nothing",
    { models: [model("a")], virtualModels: [{ name: "v", routing: { failover: { targets: [{ model: "b" }] } } }] },
    /not among/,
  ],
  [
    "a virtual model without weight",
    {
      models: [model("a")],
      virtualModels: [{ name: "v", routing: { weighted: { targets: [{ model: "a", weight: 0 }] } } }],
    },
    /all weights/,
  ],
  ["bedrock without a region", { models: [{ name: "a", provider: "bedrock" }] }, /awsRegion/],
  ["vertex without a project", { models: [{ name: "a", provider: "vertex" }] }, /vertexProject/],
  [
    "half an AWS key",
    { models: [{ name: "a", provider: "bedrock", params: { awsRegion: "us-east-1", awsAccessKeyId: "x" } }] },
    /belong together/,
  ],
  [
    "an AWS key for another provider",
    { provider: { openAI: {} }, auth: { aws: { accessKeyId: "a", secretAccessKey: "b" } } },
    /only for bedrock/,
  ],
  [
    "half an AWS key under auth",
    { provider: { bedrock: { region: "us-east-1" } }, auth: { aws: { secretAccessKey: "b" } } },
    /belong together/,
  ],
  ["a Google token for another provider", { provider: { anthropic: {} }, auth: { google: {} } }, /only for vertex/],
  [
    "a Google key file that is not there",
    { provider: { vertex: { projectId: "p" } }, auth: { google: { keyFile: "/nonexistent/key.json" } } },
    /ENOENT/,
  ],
  ["virtual models without models", { ...demo, virtualModels: [] }, /needs `models`/],
  ["a key file that is not there", { ...demo, auth: { file: "/nonexistent/key" } }, /ENOENT/],
];
for (const [name, config, message] of wrong) {
  test(`${name} fails the load`, () => assert.throws(() => compileModels(parse(config), env), message));
}

for (const config of [
  {},
  { provider: {} },
  { provider: { openAI: {}, demo: {} } },
  { ...demo, groups: [] },
  { ...demo, extra: 1 },
  { provider: { openAICompatible: {} } },
  { provider: { openAICompatible: { baseUrl: "ftp://x" } } },
  { provider: { openAICompatible: { baseUrl: "http://user:pass@x" } } },
  { ...demo, hostOverride: "no port" },
  { ...demo, auth: {} },
  { ...demo, auth: { key: "" } },
  { ...demo, auth: { key: "a", passthrough: {} } },
  { provider: { bedrock: { region: "us-east-1" } }, auth: { aws: { profile: "p", accessKeyId: "a" } } },
  { provider: { vertex: { projectId: "p" } }, auth: { google: { keyfile: "x" } } },
  { models: [{ name: "a*b*", provider: "demo" }] },
  { models: [{ name: "a", provider: "nobody" }] },
  { provider: { bedrock: { region: "us-east-1/../x" } } },
  { provider: { azure: { resourceName: "evil.com/#" } } },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => assert.equal(aiSchema.safeParse(config).success, false));
}

test("a target is ejected after failures: longer each time, at most 30 s, or for its retry-after", async () => {
  const clock = fakeClock();
  const health = new Health(clock, {
    allowedFailures: 0,
    initialMs: 1_000,
    maxMs: 30_000,
    maxRetryAfterMs: 600_000,
  });
  assert.equal(health.isEjected, false);
  health.recordFailure(undefined);
  await clock.advance(999);
  assert.equal(health.isEjected, true);
  await clock.advance(2);
  assert.equal(health.isEjected, false);
  for (let i = 0; i < 20; i++) health.recordFailure(undefined);
  await clock.advance(29_999);
  assert.equal(health.isEjected, true);
  await clock.advance(2);
  assert.equal(health.isEjected, false);
  health.recordFailure(5);
  await clock.advance(4_999);
  assert.equal(health.isEjected, true);
  health.recordSuccess();
  assert.equal(health.isEjected, false);
});

test("the results of the last hour are counted", async () => {
  const clock = fakeClock();
  const health = new Health(clock, { allowedFailures: 0, initialMs: 1, maxMs: 1, maxRetryAfterMs: 1 });
  const recent = () => health.describe().recent;
  assert.deepEqual(recent(), { calls: 0, failed: 0 });
  health.recordFailure(undefined);
  health.recordSuccess();
  assert.deepEqual(recent(), { calls: 2, failed: 1 });
  for (let minute = 1; minute <= 59; minute++) {
    await clock.advance(60_000);
    health.recordFailure(undefined);
  }
  assert.deepEqual(recent(), { calls: 61, failed: 60 });
  await clock.advance(60_000);
  assert.deepEqual(recent(), { calls: 59, failed: 59 });
  assert.equal(health.describe().lastFailureAgoMs, 60_000);
  await clock.advance(3_600_000);
  assert.deepEqual(recent(), { calls: 0, failed: 0 });
  health.recordSuccess();
  assert.deepEqual(recent(), { calls: 1, failed: 0 });
});
