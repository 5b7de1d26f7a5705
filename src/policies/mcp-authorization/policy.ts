/**
 * `mcpAuthorization`: evaluates CEL rules that decide which tools, prompts, and resources a client can see and use. The
 * MCP backend filters lists with these rules and treats a call to a denied item like a call to an unknown name.
 */
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { withArguments } from "../../core/mcp-arguments.ts";
import { definePolicy, type Hooks } from "../../core/policy.ts";
import type { McpAccess, McpAttributes } from "../../core/request-attributes.ts";
import {
  type AccessRules,
  accessRule,
  compileAccessRules,
  type Denial,
  denial,
  enforcement,
} from "../../identity/access/access-rules.ts";

type ItemKind = Parameters<McpAccess["allows"]>[0];
type Item = Required<McpAttributes>[ItemKind];
const KINDS: readonly ItemKind[] = ["tool", "prompt", "resource"];

export const mcpAuthorization = definePolicy({
  kind: "mcpAuthorization",
  doc: "Restricts the tools, prompts and resources that a client can see and use.",
  scopes: ["gateway", "route", "backend"],
  role: "security",
  protection: () => "paths",
  schema: z.strictObject({
    mode: enforcement.optional(),
    rules: z
      .array(accessRule)
      .min(1)
      .describe(
        'CEL expressions; an item is visible if one of them is true, for example `mcp.tool.name == "echo"`; or `{allow}`, `{deny}`, `{require}`.',
      ),
  }),

  compile(config, env) {
    const rules = compileAccessRules(config.rules, "allow", env.cel);
    const byKind = Object.fromEntries(KINDS.map((kind) => [kind, rulesFor(rules, kind)])) as Record<
      ItemKind,
      AccessRules
    >;
    if (config.mode === "shadow") return shadowHooks(byKind);
    return {
      access: {
        head(exchange) {
          const outer = exchange.mcp.access;
          exchange.mcp.access = {
            allows: (kind, name, target, call) => {
              if (outer?.allows(kind, name, target, call) === false) return false;
              const isCall = isCalled(exchange.attributes.mcp, kind, name);
              return isAdmitted(exchange, byKind, kind, itemOf(kind, name, target, call), (denied) => {
                if (!isCall) return;
                exchange.checkedRules = denied.checked();
                recordDenial(exchange, kind, name, denied.explain());
              });
            },
          };
          return undefined;
        },
      },
    };
  },
});

/** Builds hooks that record denials after the backend has parsed the call. No item is hidden. */
function shadowHooks(byKind: Record<ItemKind, AccessRules>): Hooks {
  const check = (exchange: Exchange, attributes: McpAttributes | undefined): void => {
    for (const kind of KINDS) {
      const item = attributes?.[kind];
      if (item === undefined) continue;
      const name = "uri" in item ? item.uri : item.name;
      isAdmitted(exchange, byKind, kind, item, (denied) =>
        exchange.deniedInShadow("mcpAuthorization", hiddenText(kind, name, denied.explain()), { isCounted: true }),
      );
    }
  };
  return {
    access: {
      head(exchange) {
        exchange.mcp.isWatched = true;
        return undefined;
      },
      body(exchange) {
        if (exchange.mcp.batch === undefined) check(exchange, exchange.attributes.mcp);
        else for (const attributes of exchange.mcp.batch) check(exchange, attributes);
      },
    },
  };
}

/**
 * Drops `deny` rules about other item kinds. A rule about tools fails to evaluate for a prompt, and a `deny` rule that
 * fails denies.
 */
function rulesFor(rules: AccessRules, kind: ItemKind): AccessRules {
  return { ...rules, deny: rules.deny.filter((rule) => !isAboutOthers(rule, kind)) };
}

function isAboutOthers(rule: Expression, kind: ItemKind): boolean {
  const named = KINDS.filter((candidate) =>
    [...rule.paths].some((path) => path === `mcp.${candidate}` || path.startsWith(`mcp.${candidate}.`)),
  );
  return named.length > 0 && !named.includes(kind) && !rule.paths.has("mcp");
}

function itemOf(kind: ItemKind, name: string, target: string, call: Parameters<McpAccess["allows"]>[3]): Item {
  if (kind === "resource") return { uri: name, target };
  const item = { name, target };
  return call === undefined ? item : withArguments(item, call.arguments);
}

/** The attributes contain the item until `onDenied` has returned. */
function isAdmitted(
  exchange: Exchange,
  byKind: Record<ItemKind, AccessRules>,
  kind: ItemKind,
  item: Item,
  onDenied: (denied: Denial) => void,
): boolean {
  const before = exchange.attributes.mcp;
  exchange.attributes.mcp = withItem(before, kind, item);
  const decided = (rule: string | undefined): void => {
    exchange.decidedBy = { policy: "mcpAuthorization", rule };
  };
  try {
    const denied = denial(byKind[kind], exchange.celAttributes, decided);
    if (denied === undefined) return true;
    decided(denied.rule);
    onDenied(denied);
    return false;
  } finally {
    if (before === undefined) delete exchange.attributes.mcp;
    else exchange.attributes.mcp = before;
  }
}

/** Returns whether the request calls this item. Hiding an item from a list is not a failure of the request. */
function isCalled(attributes: McpAttributes | undefined, kind: ItemKind, name: string): boolean {
  return (kind === "resource" ? attributes?.resource?.uri : attributes?.[kind]?.name) === name;
}

function recordDenial(exchange: Exchange, kind: ItemKind, name: string, reason: string): void {
  exchange.failure ??= {
    code: "authorization_denied",
    source: "client",
    message: `the ${kind} ${JSON.stringify(name)} is hidden`,
    detail: hiddenText(kind, name, reason),
  };
  const step = exchange.steps.findLast(({ policy }) => policy === "mcpAuthorization");
  if (step) step.verdict = "refused";
}

function hiddenText(kind: ItemKind, name: string, reason: string): string {
  return `the ${kind} ${JSON.stringify(name)} is hidden: ${reason}`;
}

/**
 * Replaces the items of the attributes. Expressions see an undefined field as absent. This runs for each item of a list,
 * and objects with the same fields are much faster than spread ones.
 */
function withItem(before: McpAttributes | undefined, kind: ItemKind, item: Item): McpAttributes {
  const attributes: Record<keyof McpAttributes, unknown> = {
    methodName: before?.methodName,
    sessionId: before?.sessionId,
    target: item.target,
    tool: kind === "tool" ? item : undefined,
    prompt: kind === "prompt" ? item : undefined,
    resource: kind === "resource" ? item : undefined,
    outcome: before?.outcome,
  };
  return attributes as McpAttributes;
}
