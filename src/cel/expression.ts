/**
 * CEL expressions, the only door to the CEL library. Compiled once per configuration load, where every name is checked;
 * evaluation then returns a result and never throws, whatever the attributes do.
 * Refused at load: sources that are too long, deep or large, names that do not exist, patterns that do not compile.
 */
import { isCelError, parse, plan } from "@bufbuild/cel";
import { analyze, offsetOf } from "./analysis/analyze.ts";
import { type Readings, readingsOf } from "./analysis/readings.ts";
import { rewrite } from "./analysis/rewrite.ts";
import { createExplanation, type ExplainedClause, type Program } from "./explain.ts";
import { type Budget, COST_EXCEEDED, createBudget, MAX_COST } from "./functions/budget.ts";
import { environment } from "./functions/functions.ts";
import { quickRule } from "./quick-rule.ts";
import { ExpressionError } from "./syntax/expression-error.ts";
import { scanSource } from "./syntax/scan-source.ts";
import type { Node, ParsedExpression } from "./syntax/syntax-tree.ts";
import { Activation, type AttributeSource } from "./values/activation.ts";
import { type CelOutput, fromCel } from "./values/values.ts";

export type { AttributeSource, Budget, CelOutput, ExplainedClause };
export { createBudget, ExpressionError };

export type EvaluationResult = { ok: true; value: CelOutput } | { ok: false; error: string };

export interface Expression {
  readonly source: string;
  /** Top-level attributes that it reads: `{"jwt", "request"}`. Variables of `all`, `map` and the like are none. */
  readonly attributes: ReadonlySet<string>;
  /** Dotted paths as far as they are fixed: `{"request.headers.x-id", "jwt.realm_access.roles"}`. */
  readonly paths: ReadonlySet<string>;
  /** Whether it reads this path, something below it, or, being less specific (`request`, `request[x]`), may do so. */
  reads(path: string): boolean;
  /** What it compares and what it tests with `has()`: for checks at load. */
  readings(): Readings;
  /**
   * With `shared`, several evaluations that follow each other without a pause draw on one budget, so that a list of rules
   * cannot hold the event loop longer than a single one.
   */
  evaluate(attributes: AttributeSource, shared?: Budget): EvaluationResult;
  /** Every part with its value or error, outermost first: for refusals and trying rules out, not for the hot path. */
  explain(attributes: AttributeSource): ExplainedClause[];
}

export function compileExpression(source: string): Expression {
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
      // A missing claim is an Error inside the library, and nobody reads its stack: without one it costs a tenth.
      const { stackTraceLimit } = Error;
      Error.stackTraceLimit = 0;
      try {
        return program(new Activation(attributes) as unknown as Parameters<typeof program>[0]);
      } finally {
        Error.stackTraceLimit = stackTraceLimit;
      }
    };
  }

  return {
    source,
    attributes,
    paths,
    reads: (path) => [...paths].some((read) => read === path || isBelow(read, path) || isBelow(path, read)),
    readings: () => readingsOf(parsed),
    explain: explanation,

    evaluate(attributes, shared) {
      budget.left = shared === undefined ? MAX_COST : shared.left;
      try {
        const answer = quick?.(attributes);
        if (answer !== undefined) return answer ? TRUE : FALSE;
      } catch {
        // Whatever an attribute threw, the library says it in its own way.
      }
      try {
        const value = run(attributes);
        // An error inside `a || b` may be covered by the other side; running out of budget never is.
        if (budget.left < 0) return { ok: false, error: COST_EXCEEDED };
        if (isCelError(value)) return { ok: false, error: value.message };
        return { ok: true, value: fromCel(value) };
      } catch (error) {
        return { ok: false, error: error instanceof Error ? error.message : "the evaluation failed" };
      } finally {
        if (shared !== undefined) shared.left = budget.left;
      }
    },
  };
}

const TRUE: EvaluationResult = Object.freeze({ ok: true, value: true });
const FALSE: EvaluationResult = Object.freeze({ ok: true, value: false });

function isBelow(path: string, parent: string): boolean {
  return path.startsWith(`${parent}.`);
}

function parseSource(source: string): ParsedExpression {
  try {
    // The parser wants a line end after a comment, also after the last.
    return withinStack(source, () => parse(`${source}\n`));
  } catch (error) {
    if (error instanceof ExpressionError) throw error;
    const offset = Math.min(errorOffset(error), source.length);
    const rest = source.slice(offset).trim();
    if (rest === "") throw new ExpressionError(source, offset, "syntax error: the expression ends too early");
    // The parser steps back to the last complete expression: the fault is here, or in what follows.
    const near = rest.length > 20 ? `${rest.slice(0, 20)}…` : rest;
    throw new ExpressionError(source, offset, `syntax error at \`${near.replace(/\s+/g, " ")}\``);
  }
}

/** Parser and planner recurse where no bracket says so (`a ? b : c ? d : …`): the end of the stack is their limit. */
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
