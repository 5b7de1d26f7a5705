/**
 * Defines a compiled CEL expression.
 */
import type { Readings } from "./analysis/readings.ts";
import type { ExplainedClause } from "./explain.ts";
import type { Budget } from "./functions/budget.ts";
import type { AttributeSource } from "./values/attribute-source.ts";
import type { CelOutput } from "./values/output.ts";

export type EvaluationResult = { ok: true; value: CelOutput } | { ok: false; error: string };

export interface Expression {
  /** The source is redacted if the options do so, and then it is suitable only for messages. */
  readonly source: string;
  /**
   * Names the top-level attributes that the expression reads, for example `{"jwt", "request"}`, without loop variables.
   */
  readonly attributes: ReadonlySet<string>;
  /**
   * Lists the constant prefixes of the paths that the expression reads, for example `{"request.headers.x-id",
   * "jwt.realm_access.roles"}`.
   */
  readonly paths: ReadonlySet<string>;
  /**
   * Returns whether the expression reads this path or a field below it, or may do so through a computed key
   * (`request[x]`).
   */
  reads(path: string): boolean;
  readings(): Readings;
  /**
   * Consecutive evaluations can share a budget, so that a list of rules cannot block the event loop longer than one
   * rule.
   */
  evaluate(attributes: AttributeSource, shared?: Budget): EvaluationResult;
  /** Returns the subexpressions with their values or errors, outermost first. */
  explain(attributes: AttributeSource): ExplainedClause[];
}

export interface ExpressionOptions {
  /** Redacts the source of an expression or of a part of it, for messages. */
  shown(source: string): string;
  /** Called after each evaluation with the attributes of a traced request. */
  traced(expression: Expression, attributes: AttributeSource, result: EvaluationResult): void;
}
