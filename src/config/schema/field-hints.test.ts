import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig } from "../load/load.ts";

const GATEWAY = "gateways: { default: { port: 0 } }\n";
const TARGET = "{ name: a, stdio: { cmd: x } }";

/** What is said of one field, without its place. */
function saidOf(text: string, field: string): string | undefined {
  const loaded = finish(loadConfig([{ file: "f", text }], {}));
  const problems = loaded.ok ? [] : loaded.problems;
  return problems.find(({ path }) => path === field)?.message;
}

const hints: [name: string, text: string, field: string, message: string][] = [
  [
    "an error inside an object where a name is allowed too",
    "llm: { models: [{ name: a, provider: { custom: { baseUrl: 'http://x.test' } } }] }",
    "llm.models[0].provider.custom.formats",
    "required field is missing",
  ],
  [
    "servers as clients have them",
    "mcpServers: { a: { command: x } }",
    "mcpServers",
    "unknown field: use `mcp.targets`, or convert a file of another program with `gwctl import <file>`",
  ],
  ["servers below `mcp`", "mcp: { servers: [] }", "mcp.servers", "unknown field: use `targets`"],
  [
    "servers in a route",
    `${GATEWAY}routes: [{ mcpServers: {} }]`,
    "routes[0].mcpServers",
    "unknown field: use `backends.mcp.targets`",
  ],
  [
    "binds of another gateway",
    "binds: []",
    "binds",
    "unknown field: write `gateways` and `routes` instead (see docs/migrate.md), or convert a file of another program with `gwctl import <file>`",
  ],
  ["listeners of another gateway", "listeners: []", "listeners", "unknown field: use `gateways`"],
  [
    "models of another proxy",
    "model_list: []",
    "model_list",
    "unknown field: use `llm.models`, or convert a file of another program with `gwctl import <file>`",
  ],
  [
    "a file of an MCP proxy",
    "mcpProxy: {}",
    "mcpProxy",
    "unknown field: convert a file of another program with `gwctl import <file>`",
  ],
  [
    "a command beside the target's name",
    "mcp: { targets: [{ name: a, command: x }] }",
    "mcp.targets[0].command",
    "unknown field: use `stdio.cmd`",
  ],
  [
    "a command inside `stdio`",
    "mcp: { targets: [{ name: a, stdio: { command: x } }] }",
    "mcp.targets[0].stdio.command",
    "unknown field: use `cmd`",
  ],
  [
    "a rate limit among the policies",
    `${GATEWAY}routes: [{ policies: { localRateLimit: [] } }]`,
    "routes[0].policies.localRateLimit",
    "unknown field: use `rateLimit.local`",
  ],
  [
    "a rate limit beside the policies",
    `${GATEWAY}routes: [{ remoteRateLimit: {} }]`,
    "routes[0].remoteRateLimit",
    "unknown field: use `policies.rateLimit.global`",
  ],
  [
    "what is not indented below `stdio`",
    "mcp:\n  targets:\n    - name: a\n      stdio:\n      cmd: x",
    "mcp.targets[0].cmd",
    "unknown field: move it below `stdio`",
  ],
  [
    "a policy beside `policies`",
    `${GATEWAY}routes: [{ apiKey: { keys: [] } }]`,
    "routes[0].apiKey",
    "unknown field: move it below `policies`",
  ],
  [
    "a path beside `matches`, which is a list",
    `${GATEWAY}routes: [{ path: /x }]`,
    "routes[0].path",
    "unknown field: move it below `matches`",
  ],
  [
    "what several fields know",
    `mcp: { targets: [{ name: a, url: "http://h/mcp" }] }`,
    "mcp.targets[0].url",
    "unknown field: move it below `mcp` or `sse` or `openapi`",
  ],
  [
    "a port in quotes",
    `gateways: { default: { port: "3000" } }`,
    "gateways.default.port",
    "expected a number, found a string: remove the quotes",
  ],
  [
    "a duration without a unit",
    `${GATEWAY}routes: [{ policies: { timeout: { requestTimeout: 10 } } }]`,
    "routes[0].policies.timeout.requestTimeout",
    "expected a duration such as 250ms, 10s, 5m or 1h30m",
  ],
  [
    "a typo, which is nearer than any hint",
    "llm: { model_list: [] }",
    "llm.model_list",
    'unknown field, did you mean "models"?',
  ],
];
const route = (text: string): string => `${GATEWAY}routes: [{ backends: [{ host: "h:80" }], ${text} }]`;
const shapes: typeof hints = [
  [
    "`prefix` of a path",
    route("matches: [{ path: { prefix: /x } }]"),
    "routes[0].matches[0].path.prefix",
    "unknown field: write `pathPrefix`",
  ],
  [
    "a path of the Gateway API",
    route("matches: [{ path: { type: PathPrefix } }]"),
    "routes[0].matches[0].path.type",
    "unknown field: write `pathPrefix`, `exact` or `regex` with the path as its value",
  ],
  [
    "a path without its kind",
    route("matches: [{ path: /x }]"),
    "routes[0].matches[0].path",
    "expected an object, found a string: write `path: { exact: … }` or `path: { pathPrefix: … }` or `path: { regex: … }`",
  ],
  [
    "one match that is not in a list",
    route("matches: { path: { exact: /x } }"),
    "routes[0].matches",
    "expected a list, found an object: write `matches: [{ path: … }]`",
  ],
  [
    "a provider by its name",
    `${GATEWAY}routes: [{ backends: [{ ai: { provider: openAI } }] }]`,
    "routes[0].backends[0].ai.provider",
    "expected an object, found a string: write `provider: { openAI: {} }`",
  ],
  [
    "a provider in another case",
    `${GATEWAY}routes: [{ backends: [{ ai: { provider: OpenAI } }] }]`,
    "routes[0].backends[0].ai.provider",
    "expected an object, found a string: write `provider: { openAI: {} }`",
  ],
  [
    "a provider as a field's value",
    `${GATEWAY}routes: [{ backends: [{ ai: { provider: { name: openAI } } }] }]`,
    "routes[0].backends[0].ai.provider.name",
    "unknown field: write the provider's name as the field, for example `openAI: {}`",
  ],
  [
    "a timeout without its kind",
    route("policies: { timeout: 5s }"),
    "routes[0].policies.timeout",
    "expected an object, found a string: write `timeout: { requestTimeout: 5s }` or `timeout: { backendRequestTimeout: 5s }`",
  ],
  [
    "a timeout without kind and unit",
    route("policies: { timeout: 5 }"),
    "routes[0].policies.timeout",
    "expected an object, found the number 5: write `timeout: { requestTimeout: 5s }` or `timeout: { backendRequestTimeout: 5s }`",
  ],
  [
    "a number of retries",
    route("policies: { retry: 3 }"),
    "routes[0].policies.retry",
    "expected an object, found the number 3: write `retry: { attempts: 3 }`",
  ],
  [
    "rules without their field",
    route('policies: { authorization: ["true"] }'),
    "routes[0].policies.authorization",
    "expected an object, found a list: write `authorization: { rules: […] }`",
  ],
  [
    "a key without its field, which is not quoted",
    route("policies: { apiKey: { keys: [abc] } }"),
    "routes[0].policies.apiKey.keys[0]",
    "expected an object, found a string: write `{ key: … }`",
  ],
  [
    "a switch that is an object",
    "config: { tracing: { keepFailed: true } }",
    "config.tracing.keepFailed",
    "expected an object, found the value true: write `keepFailed: {}`",
  ],
  [
    "servers by name",
    "mcp: { targets: { a: { stdio: { cmd: x } } } }",
    "mcp.targets",
    "expected a list, found an object: write `targets: [{ name: a, … }]`",
  ],
  [
    "a command by its name",
    "mcp: { targets: [{ name: a, stdio: npx }] }",
    "mcp.targets[0].stdio",
    "expected an object, found a string: write `stdio: { cmd: … }`",
  ],
];
for (const [name, text, field, message] of [...hints, ...shapes]) {
  test(`says what is meant by ${name}`, () => assert.equal(saidOf(text, field), message));
}

test("a provider that is only a name gets advice about settings and shared providers", () => {
  const said = (provider: string): string | undefined =>
    saidOf(`llm: { models: [{ name: a, provider: ${provider} }] }`, "llm.models[0].provider");
  assert.match(said("internal") ?? "", /; for an entry in `providers`, write `{ reference: NAME }`$/);
  assert.match(said("custom") ?? "", /; `custom` needs settings, so write `{ custom: { … } }`$/);
  assert.match(said("opnAI") ?? "", /did you mean "openAI"\?; /);
});

test("an unknown field is one error, without the list of fields that are missing", () => {
  const loaded = finish(
    loadConfig([{ file: "f", text: `${GATEWAY}routes: [{ backends: [{ ai: { provider: { openai: {} } } }] }]` }], {}),
  );
  assert.deepEqual(
    (loaded.ok ? [] : loaded.problems).map(({ path, message }) => [path, message]),
    [["routes[0].backends[0].ai.provider.openai", 'unknown field, did you mean "openAI"?']],
  );
});

const silent: [name: string, text: string, field: string, message?: string][] = [
  ["a field that nobody knows", `${GATEWAY}routes: [{ zzz: x }]`, "routes[0].zzz"],
  ["the name of an object's own member", `${GATEWAY}routes: [{ constructor: x }]`, "routes[0].constructor"],
  ["a port that gateways and sections alike may have", "port: 3000", "port"],
  ["servers among models", "llm: { servers: [] }", "llm.servers"],
  ["servers of a gateway", "gateways: { default: { port: 0, mcpServers: {} } }", "gateways.default.mcpServers"],
  ["binds of a gateway", "gateways: { default: { port: 0, binds: [] } }", "gateways.default.binds"],
  ["a command of a route", `${GATEWAY}routes: [{ command: x }]`, "routes[0].command"],
  ["what lies two levels down", `mcp: { targets: [${TARGET}], cmd: x }`, "mcp.cmd"],
  [
    "a text that is no number",
    "gateways: { default: { port: x } }",
    "gateways.default.port",
    "expected a number, found a string",
  ],
];
for (const [name, text, field, message = "unknown field"] of silent) {
  test(`guesses nothing for ${name}`, () => assert.equal(saidOf(text, field), message));
}
