/**
 * Explains the result of an expression by the values of its subexpressions, including operands that `&&` or `||`
 * skipped. Constants and loop bodies are omitted.
 */
import { type CelResult, isCelError, unparse } from "@bufbuild/cel";
import { type Budget, COST_EXCEEDED, MAX_COST } from "./functions/budget.ts";
import { namespacedName } from "./functions/functions.ts";
import { AND, childrenOf, INDEX, type Node, OR, type ParsedExpression, stringConstant } from "./syntax/syntax-tree.ts";
import type { AttributeSource } from "./values/attribute-source.ts";
import { type CelOutput, fromCel } from "./values/output.ts";

/** The innermost clauses are dropped if an expression has more. */
export const MAX_CLAUSES = 64;
const MAX_VALUES = 4096;

export type ExplainedClause = {
  /** The source is printed from the syntax tree, so spacing and quotes may differ from the configuration. */
  readonly source: string;
  readonly depth: number;
} & ({ readonly value: CelOutput } | { readonly error: string });

export type Program = (attributes: AttributeSource) => CelResult;

interface Clause {
  readonly source: string;
  readonly depth: number;
  readonly run: Program;
}

export function createExplanation(
  parsed: ParsedExpression,
  plan: (node: Node) => Program,
  budget: Budget,
): (attributes: AttributeSource) => ExplainedClause[] {
  let clauses: Clause[] | undefined;

  return (attributes) => {
    let valuesLeft = MAX_VALUES;
    budget.left = MAX_COST;

    function evaluate(run: Program): { value: CelOutput } | { error: string } {
      try {
        const result = run(attributes);
        if (budget.left < 0) return { error: COST_EXCEEDED };
        if (isCelError(result)) return { error: result.message };
        const value = fromCel(result, valuesLeft);
        valuesLeft -= countValues(value);
        return { value };
      } catch (error) {
        return { error: error instanceof Error ? error.message : "the evaluation failed" };
      }
    }

    try {
      clauses ??= collectClauses(parsed).map(({ node, ...clause }) => ({ ...clause, run: plan(node) }));
      return clauses.map(({ source, depth, run }) => ({ source, depth, ...evaluate(run) }));
    } catch {
      return [];
    }
  };
}

function collectClauses(parsed: ParsedExpression): { source: string; depth: number; node: Node }[] {
  const clauses: { source: string; depth: number; node: Node }[] = [];
  const seen = new Set<string>();
  let level: Node[] = [parsed.expr];
  for (let depth = 0; level.length > 0; depth++) {
    for (const node of level) {
      const source = unparse({ ...parsed, expr: node });
      if (seen.has(source) || node.exprKind.case === "constExpr") continue;
      if (clauses.length === MAX_CLAUSES) return clauses;
      seen.add(source);
      clauses.push({ source, depth, node });
    }
    level = level.flatMap(childClauses);
  }
  return clauses;
}

function childClauses(node: Node): Node[] {
  const kind = node.exprKind;
  switch (kind.case) {
    case "callExpr": {
      const { function: name, args } = kind.value;
      // The parser nests `a && b && c` in pairs, but the explanation lists three operands.
      if (name === AND || name === OR) return args.flatMap((argument) => flattenOperands(argument, name));
      if (name === INDEX && stringConstant(args[1]) !== undefined) return operandClauses(args[0]);
      return namespacedName(kind.value) === undefined ? childrenOf(node) : args;
    }
    case "selectExpr":
      return operandClauses(kind.value.operand);
    case "comprehensionExpr":
      return kind.value.iterRange === undefined ? [] : [kind.value.iterRange];
    default:
      return childrenOf(node);
  }
}

/** Skips the intermediate fields of `jwt.realm_access.roles`, but includes the call in `json(request.body).id`. */
function operandClauses(owner: Node | undefined): Node[] {
  if (owner === undefined || owner.exprKind.case === "identExpr") return [];
  const isStep =
    owner.exprKind.case === "selectExpr" ||
    (owner.exprKind.case === "callExpr" && owner.exprKind.value.function === INDEX);
  return isStep ? childClauses(owner) : [owner];
}

function flattenOperands(node: Node, operator: string): Node[] {
  const kind = node.exprKind;
  if (kind.case !== "callExpr" || kind.value.function !== operator) return [node];
  return kind.value.args.flatMap((argument) => flattenOperands(argument, operator));
}

function countValues(value: CelOutput): number {
  if (typeof value === "string") return 1 + (value.length >>> 6);
  if (value === null || typeof value !== "object") return 1;
  return Object.values(value).reduce<number>((size, item) => size + countValues(item), 1);
}
