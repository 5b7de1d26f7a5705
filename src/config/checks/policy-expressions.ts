/**
 * Where policies hold expressions, and at which moment of a request each is evaluated. One row per place; a test
 * finds every place that is missing here.
 */
import type { Path } from "../text/value-path.ts";

/**
 * `access`: who may come in. `requestLimit`: at admission. `tokenLimit`: the body was parsed as an LLM request.
 * `request`, `response`: what shapes them. `item`: each tool, prompt and resource of an MCP server.
 */
export type Moment = "access" | "requestLimit" | "tokenLimit" | "request" | "response" | "item";

export interface ExpressionPlace {
  readonly policy: string;
  /** `*` stands for every element or entry. */
  readonly at: readonly string[];
  readonly moment: Moment | ((beside: Readonly<Record<string, unknown>>) => Moment);
  /** The object whose fields decide the moment, as a prefix of `at`. */
  readonly decidedBy?: number;
}

export const EXPRESSION_PLACES: readonly ExpressionPlace[] = [
  { policy: "authorization", at: ["rules", "*"], moment: "access" },
  { policy: "authorization", at: ["rules", "*", "*"], moment: "access" },
  { policy: "extAuthz", at: ["context", "*"], moment: "access" },
  { policy: "extAuthz", at: ["cache", "key"], moment: "access" },
  { policy: "mcpAuthorization", at: ["rules", "*"], moment: "item" },
  { policy: "mcpAuthorization", at: ["rules", "*", "*"], moment: "item" },
  {
    policy: "rateLimit",
    at: ["local", "*", "key"],
    moment: ({ tokens }) => (tokens === undefined ? "requestLimit" : "tokenLimit"),
    decidedBy: 2,
  },
  {
    policy: "rateLimit",
    at: ["global", "descriptors", "*", "entries", "*", "value"],
    moment: ({ type }) => (type === "tokens" ? "tokenLimit" : "requestLimit"),
    decidedBy: 3,
  },
  { policy: "budgets", at: ["limits", "*", "key"], moment: "tokenLimit" },
  { policy: "transformations", at: ["request", "set", "*"], moment: "request" },
  { policy: "transformations", at: ["request", "add", "*"], moment: "request" },
  { policy: "transformations", at: ["request", "body"], moment: "request" },
  { policy: "transformations", at: ["response", "set", "*"], moment: "response" },
  { policy: "transformations", at: ["response", "add", "*"], moment: "response" },
  { policy: "transformations", at: ["response", "body"], moment: "response" },
];

export interface PlacedExpression {
  readonly source: string;
  /** Below the policy. */
  readonly path: Path;
  readonly moment: Moment;
}

/** Every expression that a policy's configuration holds. */
export function expressionsOf(policy: string, config: unknown): PlacedExpression[] {
  return EXPRESSION_PLACES.filter((place) => place.policy === policy).flatMap((place) =>
    found(config, place.at).map(({ source, path }) => ({ source, path, moment: momentOf(place, config, path) })),
  );
}

function momentOf({ moment, decidedBy = 0 }: ExpressionPlace, config: unknown, path: Path): Moment {
  if (typeof moment !== "function") return moment;
  const beside = path
    .slice(0, decidedBy)
    .reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], config);
  return moment(beside as Readonly<Record<string, unknown>>);
}

function found(value: unknown, at: readonly string[], path: Path = []): { source: string; path: Path }[] {
  const [step, ...rest] = at;
  if (step === undefined) return typeof value === "string" ? [{ source: value, path }] : [];
  if (typeof value !== "object" || value === null) return [];
  if (step !== "*") {
    const inner = Object.hasOwn(value, step) ? (value as Record<string, unknown>)[step] : undefined;
    return found(inner, rest, [...path, step]);
  }
  const entries: [string | number, unknown][] = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return entries.flatMap(([key, inner]) => found(inner, rest, [...path, key]));
}
