import assert from "node:assert/strict";
import { test } from "node:test";
import { loadConfig } from "../load/load.ts";

const GATEWAY = "gateways: { default: { port: 0 } }\n";
const TARGET = "{ name: a, stdio: { cmd: x } }";

/** What is said of one field, without its place. */
function saidOf(text: string, field: string): string | undefined {
  const loaded = loadConfig([{ file: "f", text }], {});
  const problems = loaded.ok ? [] : loaded.problems;
  return problems.find(({ path }) => path === field)?.message;
}

const hints: [name: string, text: string, field: string, message: string][] = [
  [
    "servers as clients have them",
    "mcpServers: { a: { command: x } }",
    "mcpServers",
    "unknown field: use `mcp.targets`",
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
    "unknown field: write `gateways` and `routes` instead (see docs/migrate.md)",
  ],
  ["listeners of another gateway", "listeners: []", "listeners", "unknown field: use `gateways`"],
  ["models of another proxy", "model_list: []", "model_list", "unknown field: use `llm.models`"],
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
for (const [name, text, field, message] of hints) {
  test(`says what is meant by ${name}`, () => assert.equal(saidOf(text, field), message));
}

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
