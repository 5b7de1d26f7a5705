/**
 * Evaluates the access rules of both authorization policies. All `require` rules must be true, all `deny` rules false,
 * and at least one `allow` rule true if there are any. Rules fail closed: a `require` or `allow` rule that cannot be
 * evaluated is not true, and a `deny` rule that cannot be evaluated denies.
 */
import { z } from "zod";
import { createBudget, type Expression } from "../../cel/expression.ts";
import type { CelAttributes } from "../../core/cel-attributes.ts";
import { celSource } from "../../core/schema.ts";
import type { RecordedRule } from "../../record/trace/record.ts";

export const enforcement = z
  .enum(["enforce", "shadow"])
  .describe(
    "`shadow`: evaluates the rules and records the requests that they would deny (`gwctl shadow report`), but denies nothing. Default: enforce.",
  );

export const accessRule = z.union([
  celSource(),
  z.strictObject({ allow: celSource().describe("If set, at least one of these must be true.") }),
  z.strictObject({ deny: celSource().describe("Must be false.") }),
  z.strictObject({ require: celSource().describe("Must be true.") }),
]);

export type AccessRule = z.output<typeof accessRule>;
export type RuleKind = "allow" | "deny" | "require";

export interface AccessRules {
  readonly allow: readonly Expression[];
  readonly deny: readonly Expression[];
  readonly require: readonly Expression[];
}

/** `plainMeans` is the kind of a rule without a key. */
export function compileAccessRules(
  rules: readonly AccessRule[],
  plainMeans: RuleKind,
  cel: (source: string) => Expression,
): AccessRules {
  const compiled: Record<RuleKind, Expression[]> = { allow: [], deny: [], require: [] };
  for (const rule of rules) {
    const [kind, source] =
      typeof rule === "string" ? [plainMeans, rule] : (Object.entries(rule)[0] as [RuleKind, string]);
    compiled[kind].push(cel(source));
  }
  return compiled;
}

export interface Denial {
  /** The source of the rule that denied, or undefined if no `allow` rule was true. */
  readonly rule: string | undefined;
  /** Explains the denial to the operator. Call it before the attributes change. */
  explain(): string;
  /** Returns all rules with their results, for the operator. Call it before the attributes change. */
  checked(): RecordedRule[];
}

/** Returns undefined if the request is admitted. If an `allow` rule admitted it, `allowedBy` receives its source. */
export function denial(
  rules: AccessRules,
  attributes: CelAttributes,
  allowedBy?: (rule: string) => void,
): Denial | undefined {
  const budget = createBudget();
  const checked = (): RecordedRule[] => checkedRules(rules, attributes);
  const deniedBy = (rule: Expression, name: string, verdict?: string): Denial => ({
    rule: rule.source,
    checked,
    explain: () => `the ${name} ${explained(rule, attributes, verdict)}`,
  });
  for (const rule of rules.deny) {
    const result = rule.evaluate(attributes, budget);
    if (!result.ok) return deniedBy(rule, "deny rule", failed(result.error));
    if (result.value !== false) return deniedBy(rule, "deny rule", result.value === true ? "is true" : "is not false");
  }
  for (const rule of rules.require) {
    const result = rule.evaluate(attributes, budget);
    if (!result.ok) return deniedBy(rule, "rule", failed(result.error));
    if (result.value !== true) return deniedBy(rule, "rule");
  }
  if (rules.allow.length === 0) return undefined;
  const admitting = rules.allow.find((rule) => {
    const result = rule.evaluate(attributes, budget);
    return result.ok && result.value === true;
  });
  if (admitting !== undefined) {
    allowedBy?.(admitting.source);
    return undefined;
  }
  const shown = rules.allow.slice(0, 3);
  return {
    rule: undefined,
    checked,
    explain: () => `no allow rule is true: ${shown.map((rule) => explained(rule, attributes)).join("; ")}`,
  };
}

const MAX_CHECKED = 20;

/** Does not evaluate the rules again, because the trace shows each evaluation. */
function checkedRules(rules: AccessRules, attributes: CelAttributes): RecordedRule[] {
  const all = (["deny", "require", "allow"] as const).flatMap((kind) => rules[kind].map((rule) => ({ kind, rule })));
  return all.slice(0, MAX_CHECKED).map(({ kind, rule }) => {
    const wanted = kind !== "deny";
    const whole = rule.explain(attributes).find(({ depth }) => depth === 0);
    // A constant has no clause.
    const isMet =
      whole === undefined ? rule.source.trim() === String(wanted) : "value" in whole && whole.value === wanted;
    const values = readValues(rule, attributes);
    return { kind, rule: rule.source, isMet, ...(values === "" ? {} : { values }) };
  });
}

/** These values may be secrets, so the reason shows only the source of a rule that reads them. */
const NOT_SHOWN = ["request.headers", "request.body", "request.uri", "request.pathAndQuery", "response"];
const MAX_TEXT = 400;
const TEXTS_AND_WORDS = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\b(?:true|false|null|in)\b|\b\d[\w.]*/g;

function failed(error: string): string {
  return `cannot be evaluated (${error})`;
}

function explained(rule: Expression, attributes: CelAttributes, verdict = "is not true"): string {
  const text = `\`${rule.source}\` ${verdict}`;
  const values = readValues(rule, attributes);
  return values === "" ? text : `${text}: ${values}`.slice(0, MAX_TEXT);
}

/** Lists the values that a rule read, and those that it did not find. */
function readValues(rule: Expression, attributes: CelAttributes): string {
  const { isHidden, isConstantClause } = analyzeRule(rule);
  if (isHidden) return "";
  const clauses = rule.explain(attributes).filter(({ depth, source }) => depth > 0 && !isConstantClause(source));
  const values = clauses.flatMap((clause) => {
    if ("value" in clause) return [`${clause.source} is ${JSON.stringify(clause.value, jsonable)}`];
    // A clause fails because of its parts, so only the innermost one says why.
    const isOuter = clauses.some(
      (one) => !("value" in one) && one.depth > clause.depth && clause.source.includes(one.source),
    );
    if (isOuter) return [];
    return clause.error.startsWith("field not found")
      ? [`${clause.source} was not found`]
      : [`${clause.source}: ${clause.error}`];
  });
  return [...new Set(values)].join(", ").slice(0, MAX_TEXT);
}

interface RuleAnalysis {
  readonly isHidden: boolean;
  isConstantClause(source: string): boolean;
}

const known = new WeakMap<Expression, RuleAnalysis>();

function analyzeRule(rule: Expression): RuleAnalysis {
  const before = known.get(rule);
  if (before) return before;
  const clauses = new Map<string, boolean>([[rule.source, true]]);
  const made: RuleAnalysis = {
    isHidden: NOT_SHOWN.some((path) => rule.reads(path)),
    isConstantClause(source) {
      const found = clauses.get(source) ?? isConstant(source);
      clauses.set(source, found);
      return found;
    },
  };
  known.set(rule, made);
  return made;
}

/** A clause without variables explains nothing, for example `["a"] is ["a"]`. */
function isConstant(source: string): boolean {
  return !/[A-Za-z_]/.test(source.replace(TEXTS_AND_WORDS, ""));
}

function jsonable(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}
