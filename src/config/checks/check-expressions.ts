/**
 * Warns of expressions that cannot mean what they say: an attribute that is never there, an object compared with a text,
 * a name that does not exist in this configuration.
 */
import { compileExpression, type Expression } from "../../cel/expression.ts";
import { ATTRIBUTES } from "../../cel/values/attributes.ts";
import { suggestion } from "../../cel/values/nearest-name.ts";
import { neverThere } from "./availability.ts";
import { expressionsOf, type Moment } from "./policy-expressions.ts";
import type { Site, SitedPolicy } from "./site.ts";
import { type Warn, warningAt } from "./warning.ts";

export function checkExpressions({ policy, site }: SitedPolicy, warn: Warn): void {
  for (const { source, path, moment } of expressionsOf(policy.kind, policy.config)) {
    const expression = compileExpression(source);
    for (const message of [
      ...absent(expression, moment, site),
      ...objects(expression),
      ...unknownNames(expression, site),
    ])
      warn(warningAt(policy.place, path, message));
  }
}

function absent(expression: Expression, moment: Moment, site: Site): string[] {
  const { tested } = expression.readings();
  // The rate limit says it itself: its buckets depend on it (spec 8).
  const paths = [...expression.paths].filter((path) => moment !== "requestLimit" || !/^llm\b/.test(path));
  const reasons = new Map<string, string[]>();
  for (const path of paths) {
    const reason = neverThere(path, moment, site);
    if (reason === undefined || isTested(path, tested)) continue;
    reasons.set(reason, [...(reasons.get(reason) ?? []), path]);
  }
  return [...reasons].map(
    ([reason, list]) =>
      `${list.map((path) => `\`${path}\``).join(", ")} ${list.length === 1 ? "is" : "are"} never set here, and reading it always fails: ${reason}`,
  );
}

/** Guarded by `has()`, of itself or of what it belongs to: the author counts on its absence. */
function isTested(path: string, tested: ReadonlySet<string>): boolean {
  return [...tested].some((one) => path === one || path.startsWith(`${one}.`) || one.startsWith(`${path}.`));
}

const FIELDS = ATTRIBUTES.flatMap(({ fields }) => fields);

/** `mcp.tool == "echo"`: never true, and never an error. */
function objects(expression: Expression): string[] {
  const paths = new Set(expression.readings().comparisons.map(({ path }) => path));
  return [...paths].flatMap((path) => {
    const inside = FIELDS.filter((field) => field.path.startsWith(`${path}.`));
    const own = FIELDS.find((field) => field.path === path);
    if (inside.length === 0 || (own !== undefined && own.type !== "map")) return [];
    const text = inside.find(({ path: one, type }) => type === "string" && !one.includes("<"));
    const instead = text === undefined ? "name one of its fields" : `did you mean \`${text.path}\`?`;
    return [`\`${path}\` is an object and never equals a string: ${instead}`];
  });
}

/** Attributes with values that the configuration itself gives. */
const NAMES: readonly { path: string; noun: string; of(site: Site): readonly string[] | undefined }[] = [
  ...["mcp.target", "mcp.tool.target", "mcp.prompt.target", "mcp.resource.target"].map((path) => ({
    path,
    noun: "MCP server",
    of: targetNames,
  })),
  {
    path: "proxy.route.name",
    noun: "route",
    of: ({ scope, routes, config }) => (scope === "gateway" ? routes : config.routes).map(({ name }) => name),
  },
  { path: "proxy.listener.name", noun: "gateway", of: ({ config }) => config.gateways.map(({ name }) => name) },
  { path: "backend.type", noun: "backend type", of: () => ["static", "mcp", "ai", "internal"] },
  { path: "backend.protocol", noun: "backend protocol", of: () => ["http", "mcp", "llm"] },
  { path: "request.scheme", noun: "scheme", of: () => ["http", "https"] },
];

function unknownNames(expression: Expression, site: Site): string[] {
  const said = expression.readings().comparisons.flatMap(({ path, values }) => {
    const row = NAMES.find((one) => one.path === path);
    const known = row?.of(site);
    if (row === undefined || known === undefined) return [];
    return values
      .filter((value) => !known.includes(value))
      .map((value) => `there is no ${row.noun} named ${JSON.stringify(value)}${suggestion(value, known)}`);
  });
  return [...new Set(said)];
}

/** Undefined without MCP backends: that is said of the attribute itself. */
function targetNames({ backends }: Site): readonly string[] | undefined {
  const names = backends
    .filter(({ key }) => key === "mcp")
    .flatMap(({ config }) => (config as { targets: readonly { name: string }[] }).targets.map(({ name }) => name));
  return names.length === 0 ? undefined : names;
}
