/**
 * Implements `compileExpression`. Compilation rejects sources that are too long, too deep, or too large,
 * unknown names, and invalid patterns. Evaluation never throws.
 */
import { isCelError, parse, plan } from "@bufbuild/cel";
import { analyze, offsetOf } from "./analysis/analyze.ts";
import { readingsOf } from "./analysis/readings.ts";
import { rewrite } from "./analysis/rewrite.ts";
import type { EvaluationResult, Expression, ExpressionOptions } from "./compiled-expression.ts";
import { createExplanation, type Program } from "./explain.ts";
import { type Budget, COST_EXCEEDED, createBudget, MAX_COST } from "./functions/budget.ts";
import { environment } from "./functions/functions.ts";
import { quickRule } from "./quick-rule.ts";
import { ExpressionError } from "./syntax/expression-error.ts";
import { scanSource } from "./syntax/scan-source.ts";
import type { Node, ParsedExpression } from "./syntax/syntax-tree.ts";
import { Activation } from "./values/activation.ts";
import { type AttributeSource, IS_TRACED } from "./values/attribute-source.ts";
import { fromCel } from "./values/output.ts";

export function compileExpression(source: string, options?: ExpressionOptions): Expression {
  scanSource(source);
  const parsed = parseSource(source);
  const { attributes, paths } = analyze(source, parsed);
  const budget = createBudget();
  const run = withinStack(source, () => planNode(parsed.expr));
  const quick = withinStack(source, () => quickRule(parsed.expr));
  const explanation = createExplanation(parsed, planNode, budget);

  function planNode(node: Node): Program {
    const refuse = (culprit: Node, problem: string): never => {
      throw new ExpressionError(source, offsetOf(source, parsed, culprit), problem);
    };
    const program = plan(environment, rewrite(node, { budget, refuse }));
    return (attributes) => {
      // The library creates an Error for a missing claim. Without a stack trace, that is cheaper.
      const { stackTraceLimit } = Error;
      Error.stackTraceLimit = 0;
      try {
        return program(new Activation(attributes) as unknown as Parameters<typeof program>[0]);
      } finally {
        Error.stackTraceLimit = stackTraceLimit;
      }
    };
  }

  function evaluate(attributes: AttributeSource, shared: Budget | undefined): EvaluationResult {
    budget.left = shared === undefined ? MAX_COST : shared.left;
    try {
      const answer = quick?.(attributes);
      if (answer !== undefined) return answer ? TRUE : FALSE;
    } catch {
      // The library evaluates the expression again and reports the attribute's error.
    }
    try {
      const value = run(attributes);
      // `a || b` may absorb an error of one operand, but an exhausted budget always fails the evaluation.
      if (budget.left < 0) return { ok: false, error: COST_EXCEEDED };
      if (isCelError(value)) return { ok: false, error: value.message };
      return { ok: true, value: fromCel(value) };
    } catch (error) {
      return { ok: false, error: error instanceof Error ? error.message : "the evaluation failed" };
    } finally {
      if (shared !== undefined) shared.left = budget.left;
    }
  }

  // Computed lazily, because the configuration may declare more sensitive names later.
  let shown: string | undefined;
  const shownSource = (): string => {
    shown ??= options === undefined ? source : options.shown(source);
    return shown;
  };

  const expression: Expression = {
    get source() {
      return shownSource();
    },
    attributes,
    paths,
    reads: (path) => [...paths].some((read) => read === path || isBelow(read, path) || isBelow(path, read)),
    readings: () => readingsOf(parsed),
    explain: (values) =>
      options === undefined
        ? explanation(values)
        : explanation(values).map((clause) => ({ ...clause, source: options.shown(clause.source) })),
    evaluate(values, shared) {
      const result = evaluate(values, shared);
      if (options !== undefined && values[IS_TRACED]) options.traced(expression, values, result);
      return result;
    },
  };
  return expression;
}

const TRUE: EvaluationResult = Object.freeze({ ok: true, value: true });
const FALSE: EvaluationResult = Object.freeze({ ok: true, value: false });

function isBelow(path: string, parent: string): boolean {
  return path.startsWith(`${parent}.`);
}

function parseSource(source: string): ParsedExpression {
  try {
    // The parser requires a newline after a trailing comment.
    return withinStack(source, () => parse(`${source}\n`));
  } catch (error) {
    if (error instanceof ExpressionError) throw error;
    const offset = Math.min(errorOffset(error), source.length);
    const rest = source.slice(offset).trim();
    if (rest === "") throw new ExpressionError(source, offset, "syntax error: the expression ends too early");
    // The parser backtracks to the last complete expression, so the mistake is at this offset or later.
    const near = rest.length > 20 ? `${rest.slice(0, 20)}…` : rest;
    const message = `syntax error at \`${near.replace(/\s+/g, " ")}\``;
    throw new ExpressionError(source, offset, `${message}: ${expectedAt(rest)}`);
  }
}

const WORD_OPERATORS: Readonly<Record<string, string>> = { and: "&&", or: "||", not: "!" };

/** Returns what CEL expects instead of the text, which begins with the token that it cannot read. */
function expectedAt(rest: string): string {
  const [token = ""] = /^(?:[A-Za-z_]\w*|[=!<>]=|&&|\|\||\S)/.exec(rest) ?? [];
  const instead = WORD_OPERATORS[token.toLowerCase()];
  if (instead !== undefined) return `write \`${instead}\` instead of \`${token}\``;
  if (token === ".") return "expected the name of a field after `.`";
  if (token === "in") return "expected a list or a map after `in`";
  if (/^[=!<>&|+*/%?:,-]/.test(token)) return `expected a value after \`${token}\``;
  return `expected an operator such as \`==\` or \`&&\` before \`${token}\``;
}

/**
 * Converts a stack overflow to an error, because the parser and the planner recurse even without brackets (`a ? b : c ?
 * d : …`).
 */
function withinStack<T>(source: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (error instanceof RangeError) throw new ExpressionError(source, 0, "the expression nests too deeply");
    throw error;
  }
}

function errorOffset(error: unknown): number {
  if (!(error instanceof Error) || !("location" in error)) return 0;
  const { location } = error as { location?: { start?: { offset?: number } } };
  return location?.start?.offset ?? 0;
}
