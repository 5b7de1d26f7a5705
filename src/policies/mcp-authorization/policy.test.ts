import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange, McpAccess } from "../../core/exchange.ts";
import { mcpAuthorization } from "./policy.ts";

type Item = Parameters<McpAccess["allows"]>;

function access(
  rules: unknown[],
  exchange: Exchange = anExchange({ jwt: { roles: ["user"] } }),
): (...item: Item) => boolean {
  mcpAuthorization.compile(mcpAuthorization.schema.parse({ rules }), testEnv).request?.(exchange);
  return (...item) => exchange.mcpAccess?.allows(...item) ?? true;
}

const cases: { name: string; rules: unknown[]; item: Item; allowed: boolean }[] = [
  {
    name: "a tool that a plain rule names",
    rules: ['mcp.tool.name == "echo"'],
    item: ["tool", "echo", "a"],
    allowed: true,
  },
  { name: "a tool that no rule names", rules: ['mcp.tool.name == "echo"'], item: ["tool", "add", "a"], allowed: false },
  {
    name: "a prompt, when rules allow tools only",
    rules: ['mcp.tool.name == "echo"'],
    item: ["prompt", "echo", "a"],
    allowed: false,
  },
  {
    name: "one of several plain rules",
    rules: ['mcp.tool.name == "a"', 'mcp.prompt.name == "b"'],
    item: ["prompt", "b", "x"],
    allowed: true,
  },
  {
    name: "a resource by its URI",
    rules: ['mcp.resource.uri.startsWith("file:///docs/")'],
    item: ["resource", "file:///docs/a", "x"],
    allowed: true,
  },
  {
    name: "another resource",
    rules: ['mcp.resource.uri.startsWith("file:///docs/")'],
    item: ["resource", "file:///etc/a", "x"],
    allowed: false,
  },
  { name: "everything of a target", rules: ['mcp.target == "docs"'], item: ["prompt", "any", "docs"], allowed: true },
  { name: "another target", rules: ['mcp.target == "docs"'], item: ["prompt", "any", "ops"], allowed: false },
  {
    name: "a tool for a role that the user lacks",
    rules: ['mcp.tool.name == "echo" && "admin" in jwt.roles'],
    item: ["tool", "echo", "a"],
    allowed: false,
  },
  { name: "a denied tool", rules: [{ deny: 'mcp.tool.name == "rm"' }], item: ["tool", "rm", "a"], allowed: false },
  {
    name: "a tool beside the denied one",
    rules: [{ deny: 'mcp.tool.name == "rm"' }],
    item: ["tool", "ls", "a"],
    allowed: true,
  },
  {
    name: "a prompt, when a rule denies tools",
    rules: [{ deny: 'mcp.tool.name == "rm"' }],
    item: ["prompt", "rm", "a"],
    allowed: true,
  },
  {
    name: "a tool, when a deny rule cannot be evaluated",
    rules: [{ deny: "jwt.missing" }],
    item: ["tool", "ls", "a"],
    allowed: false,
  },
  {
    name: "a tool that a required rule admits",
    rules: [{ require: '"user" in jwt.roles' }],
    item: ["tool", "ls", "a"],
    allowed: true,
  },
];
for (const { name, rules, item, allowed } of cases) {
  test(`${allowed ? "shows" : "hides"} ${name}`, () => {
    assert.equal(access(rules)(...item), allowed);
  });
}

test("the facts of the request are as before when a rule was asked", () => {
  const exchange = anExchange({ mcp: { methodName: "tools/call", tool: { name: "echo", target: "a" } } });
  const before = exchange.facts.mcp;
  assert.equal(access(['mcp.methodName == "tools/call" && !has(mcp.tool)'], exchange)("prompt", "p", "a"), true);
  assert.equal(exchange.facts.mcp, before);
});

test("two scopes must both allow an item", () => {
  const exchange = anExchange();
  access(['mcp.tool.name.startsWith("a")'], exchange);
  const both = access(['mcp.tool.name.endsWith("z")'], exchange);
  assert.deepEqual([both("tool", "az", "t"), both("tool", "ab", "t"), both("tool", "bz", "t")], [true, false, false]);
});

for (const config of [{}, { rules: [] }, { rules: ["mcp.tool.name =="] }]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(mcpAuthorization.schema.safeParse(config).success, false);
  });
}
