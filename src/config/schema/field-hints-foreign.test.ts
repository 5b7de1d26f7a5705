import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig } from "../load/load.ts";
import { FOREIGN_WORDS } from "./field-hints.ts";

const GATEWAY = "gateways: { default: { port: 0 } }\n";
const inRoute = (fields: string): string => `${GATEWAY}routes: [{ ${fields} }]`;
const inPolicies = (fields: string): string => inRoute(`policies: { ${fields} }`);
const inModel = (fields: string): string => `llm: { models: [{ name: m, provider: openAI, ${fields} }] }`;
const inTarget = (fields: string): string => `mcp: { targets: [{ name: a, ${fields} }] }`;

/** What is said of each field, without its place. */
function saidOf(text: string): Map<string, string> {
  const loaded = finish(loadConfig([{ file: "f", text }], {}));
  return new Map(
    (loaded.ok ? [] : loaded.problems).map(({ path, message }) => [path.split(".").at(-1) ?? "", message]),
  );
}

/** As those programs' files have them: file, field, and what must be said. */
const files: [text: string, field: string, said: RegExp][] = [
  ["binds: [{ port: 3000 }]", "binds", /write `gateways` and `routes` instead/],
  [inTarget("mcp: { host: h, port: 80, path: /mcp }"), "host", /write one `url` instead of `host`, `port` and `path`/],
  [inTarget("sse: { host: h }"), "host", /write one `url`/],
  [
    inRoute("matches: [{ headers: [{ name: a, value: { exact: b } }] }]"),
    "value",
    /write `exact` or `regex` beside `name`/,
  ],
  [
    inPolicies("rateLimit: { local: [{ maxTokens: 5, tokensPerFill: 5, fillInterval: 1s }] }"),
    "maxTokens",
    /write `requests` or `tokens`, and `unit`/,
  ],
  [
    inRoute("backends: [{ ai: { name: a, provider: { openAI: {} }, routes: {} } }]"),
    "routes",
    /write nothing: the format is recognized/,
  ],
  [inModel('auth: { key: "x" }'), "auth", /write `params\.apiKey`/],
  [inModel("transformation: {}"), "transformation", /write `params\.model`/],
  [inModel("guardrails: {}"), "guardrails", /promptGuard/],
  ["config: { mcp: { sessionTtl: 1m } }", "mcp", /write `sessionIdleTtl`/],
  ["config: { database: { url: x } }", "database", /write `history`/],
  ["config: { readinessAddr: x }", "readinessAddr", /write `statsAddr`, which also serves/],
  ["config: { tracing: { otlpEndpoint: x } }", "otlpEndpoint", /write `telemetry\.otlp` below `config`/],
  ["frontendPolicies: {}", "frontendPolicies", /`gwctl import agentgateway` converts it to `config`/],
  ["config: { modelCatalog: x }", "modelCatalog", /write `modelCatalog` below `llm`/],
  [
    inPolicies("urlRewrite: { authority: { full: x } }"),
    "authority",
    /expected a string, found an object: write the text of `full` itself/,
  ],
  [inPolicies("backendAuth: { key: { value: x } }"), "value", /write the text of `value` as `key` itself/],
  [inTarget('stdio: "npx -y x"'), "stdio", /expected an object, found a string: write `cmd` and `args`/],
  ["routeGroups: []", "routeGroups", /^unknown field: not supported here$/],
  [
    inModel("params: { azureProjectName: x }"),
    "azureProjectName",
    /not supported here; Azure is reached by `azureResourceName`/,
  ],
  [inPolicies("a2a: {}"), "a2a", /write a backend `a2a`/],
  ["router_settings: {}", "router_settings", /write `llm\.virtualModels`/],
  ["litellm_settings: {}", "litellm_settings", /write fields of `llm`/],
  ["general_settings: {}", "general_settings", /write `policies\.apiKey`/],
  [inModel("litellm_params: {}"), "litellm_params", /write `provider` and `params`/],
  [inModel("params: { api_base: x }"), "api_base", /write `baseUrl`/],
  [inModel("params: { api_key: x }"), "api_key", /did you mean "apiKey"/],
  [inTarget("stdio: { cmd: x }, type: stdio"), "type", /write `stdio`, `mcp` or `sse`/],
  [inTarget("stdio: { cmd: x }, disabled: true"), "disabled", /not supported here; leave the entry out/],
  ["mcp: { targets: [{ name: a, stdio: { cmd: x } }], sessionTimeout: 5 }", "sessionTimeout", /write `sessionIdleTtl`/],
  ["mcp: { targets: [{ name: a, stdio: { cmd: x } }], outputTransport: sse }", "outputTransport", /are both served/],
  ["logLevel: debug", "logLevel", /write `config\.logging\.level`/],
];
for (const [text, field, said] of files) {
  test(`${field}: ${said.source}`, () => assert.match(saidOf(text).get(field) ?? "nothing is said", said));
}

test("no field of the schema is called unsupported", () => {
  const fields = new Set<string>();
  const collect = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    if ("properties" in value) for (const name of Object.keys(value.properties as object)) fields.add(name);
    for (const child of Object.values(value)) collect(child);
  };
  collect(JSON.parse(readFileSync("schema/config.schema.json", "utf8")));
  assert.ok(fields.has("oidc") && fields.has("openapi"));
  const stale = FOREIGN_WORDS.filter(({ word, say }) => say === "not supported here" && fields.has(word));
  assert.deepEqual(stale, []);
});

test("no row is there twice, and none stands for a word that is known beside its fields", () => {
  const keys = FOREIGN_WORDS.map(({ word, beside }) => `${word} ${beside.join()}`);
  assert.deepEqual(
    keys.filter((key, i) => keys.indexOf(key) !== i),
    [],
  );
  for (const { word, beside } of FOREIGN_WORDS) assert.ok(!beside.includes(word), word);
});
