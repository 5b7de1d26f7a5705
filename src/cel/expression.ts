/**
 * Compiles CEL expressions. The CEL library is loaded when the first expression is compiled, because it takes about 40 ms
 * and 8 MB (ADR 46).
 */
import { createRequire } from "node:module";
import { onDemand } from "../base/on-demand.ts";
import type { EvaluationResult, Expression, ExpressionOptions } from "./compiled-expression.ts";
import type { ExplainedClause } from "./explain.ts";
import { type Budget, createBudget } from "./functions/budget.ts";
import { ExpressionError } from "./syntax/expression-error.ts";
import type { AttributeSource } from "./values/attribute-source.ts";
import type { CelOutput } from "./values/output.ts";

export type { AttributeSource, Budget, CelOutput, EvaluationResult, ExplainedClause, Expression, ExpressionOptions };
export { createBudget, ExpressionError };

const require = createRequire(import.meta.url);
const compiler = onDemand<typeof import("./expression-compiler.ts")>(() => require("./expression-compiler.js"));

export function compileExpression(source: string, options?: ExpressionOptions): Expression {
  return compiler().compileExpression(source, options);
}
