import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { McpAccess } from "../../core/request-attributes.ts";
import { mcpAuthorization } from "./policy.ts";

type Item = Parameters<McpAccess["allows"]>;

function access(
  rules: unknown[],
  exchange: Exchange = anExchange({ jwt: { roles: ["user"] } }),
): (...item: Item) => boolean {
  void mcpAuthorization.compile(mcpAuthorization.schema.parse({ rules }), testEnv).access?.head?.(exchange);
  return (...item) => exchange.mcp.access?.allows(...item) ?? true;
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

test("evaluating a rule does not change the request's attributes", () => {
  const exchange = anExchange({ mcp: { methodName: "tools/call", tool: { name: "echo", target: "a" } } });
  const before = exchange.attributes.mcp;
  assert.equal(access(['mcp.methodName == "tools/call" && !has(mcp.tool)'], exchange)("prompt", "p", "a"), true);
  assert.equal(exchange.attributes.mcp, before);
});

test("two scopes must both allow an item", () => {
  const exchange = anExchange();
  access(['mcp.tool.name.startsWith("a")'], exchange);
  const both = access(['mcp.tool.name.endsWith("z")'], exchange);
  assert.deepEqual([both("tool", "az", "t"), both("tool", "ab", "t"), both("tool", "bz", "t")], [true, false, false]);
});

const HIDDEN = 'the tool "add" is hidden';

test("a call of a hidden tool records the rule for the operator", () => {
  const exchange = anExchange({
    jwt: { roles: ["user"] },
    mcp: { methodName: "tools/call", tool: { name: "add", target: "a" } },
  });
  exchange.steps.push({ policy: "mcpAuthorization", phase: "route", verdict: "passed", micros: 0 });
  assert.equal(access(['"admin" in jwt.roles'], exchange)("tool", "add", "a"), false);
  assert.deepEqual(exchange.failure, {
    code: "authorization_denied",
    source: "client",
    message: HIDDEN,
    detail: `${HIDDEN}: no allow rule is true: \`"admin" in jwt.roles\` is not true: jwt.roles is ["user"]`,
  });
  assert.equal(exchange.steps.at(-1)?.verdict, "refused");
});

const asked = { methodName: "tools/call", tool: { name: "add", target: "a" } };
const unblamed: { name: string; mcp: object; item: Item; rules?: unknown[] }[] = [
  { name: "left out of a list", mcp: { methodName: "tools/list" }, item: ["tool", "add", "a"] },
  { name: "another than the one that is called", mcp: asked, item: ["tool", "sub", "a"] },
  { name: "of another kind, with the same name", mcp: asked, item: ["prompt", "add", "a"] },
  { name: "a resource by the name of a tool", mcp: asked, item: ["resource", "add", "a"] },
  { name: "allowed", mcp: asked, item: ["tool", "add", "a"], rules: ["true"] },
];
for (const { name, mcp, item, rules = ["false"] } of unblamed) {
  test(`an item that is ${name} is not recorded as a failure`, () => {
    const exchange = anExchange({ mcp });
    access(rules, exchange)(...item);
    assert.equal(exchange.failure, undefined);
  });
}

test("hidden resources and prompts that are requested by name are recorded, too", () => {
  const resource = anExchange({ mcp: { methodName: "resources/read", resource: { uri: "file:///x", target: "a" } } });
  access(["false"], resource)("resource", "file:///x", "a");
  assert.equal(resource.failure?.message, 'the resource "file:///x" is hidden');
  const prompt = anExchange({ mcp: { methodName: "prompts/get", prompt: { name: "p", target: "a" } } });
  access(["false"], prompt)("prompt", "p", "a");
  assert.equal(prompt.failure?.message, 'the prompt "p" is hidden');
});

test("an earlier failure stays the reason", () => {
  const exchange = anExchange({ mcp: asked });
  const before = { code: "bad_request", source: "client", message: "first", detail: undefined } as const;
  exchange.failure = before;
  access(["false"], exchange)("tool", "add", "a");
  assert.equal(exchange.failure, before);
});

test("if two scopes deny, the outer one is recorded, once", () => {
  const exchange = anExchange({ mcp: asked });
  access(['mcp.tool.name == "x"'], exchange);
  access(['mcp.tool.name == "y"'], exchange)("tool", "add", "a");
  assert.match(exchange.failure?.detail ?? "", /name == "x"/);
});

for (const config of [{}, { rules: [] }, { rules: ["mcp.tool.name =="] }]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(mcpAuthorization.schema.safeParse(config).success, false);
  });
}
