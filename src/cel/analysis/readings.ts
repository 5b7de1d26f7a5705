/**
 * Collects how an expression uses attributes: comparisons with string constants, and `has()` tests.
 */
import { childrenOf, INDEX, type Node, type ParsedExpression, stringConstant } from "../syntax/syntax-tree.ts";

/**
 * Describes a comparison (`==`, `!=`, `in`) of the path with string constants, or a string method called on the path,
 * for which `values` is empty.
 */
export interface Comparison {
  readonly path: string;
  readonly values: readonly string[];
}

export interface Readings {
  readonly comparisons: readonly Comparison[];
  /** Contains the paths inside `has()`, which may be absent. */
  readonly tested: ReadonlySet<string>;
}

const EQUALITY: ReadonlySet<string> = new Set(["_==_", "_!=_"]);
const IN = "@in";
const STRING_METHODS: ReadonlySet<string> = new Set(["startsWith", "endsWith", "contains", "matches"]);

export function readingsOf(parsed: ParsedExpression): Readings {
  const comparisons: Comparison[] = [];
  const tested = new Set<string>();

  function compare(node: Node | undefined, variables: ReadonlySet<string>, values: readonly string[]): void {
    const path = node && fixedPath(node, variables);
    if (path !== undefined) comparisons.push({ path, values });
  }

  function visit(node: Node, variables: ReadonlySet<string>): void {
    const kind = node.exprKind;
    let inner = variables;
    if (kind.case === "selectExpr" && kind.value.testOnly && kind.value.operand) {
      const path = fixedPath(kind.value.operand, variables);
      if (path !== undefined) tested.add(`${path}.${kind.value.field}`);
    } else if (kind.case === "comprehensionExpr") {
      inner = new Set([...variables, kind.value.iterVar, kind.value.accuVar]);
    } else if (kind.case === "callExpr") {
      const { function: name, target, args } = kind.value;
      const [left, right] = args;
      if (EQUALITY.has(name)) {
        for (const [operand, constant] of [
          [left, right],
          [right, left],
        ]) {
          const text = stringConstant(constant);
          if (text !== undefined) compare(operand, variables, [text]);
        }
      } else if (name === IN && right?.exprKind.case === "listExpr") {
        const values = right.exprKind.value.elements.map(stringConstant).filter((text) => text !== undefined);
        if (values.length > 0) compare(left, variables, values);
      } else if (STRING_METHODS.has(name)) compare(target, variables, []);
    }
    for (const child of childrenOf(node)) visit(child, inner);
  }

  visit(parsed.expr, new Set());
  return { comparisons, tested };
}

/** Returns undefined if the node is not a path, has a computed key, or starts at a loop variable. */
function fixedPath(node: Node, variables: ReadonlySet<string>): string | undefined {
  const kind = node.exprKind;
  if (kind.case === "identExpr") {
    const name = kind.value.name.replace(/^\./, "");
    return variables.has(name) ? undefined : name;
  }
  if (kind.case === "selectExpr" && !kind.value.testOnly && kind.value.operand) {
    const parent = fixedPath(kind.value.operand, variables);
    return parent === undefined ? undefined : `${parent}.${kind.value.field}`;
  }
  if (kind.case !== "callExpr" || kind.value.function !== INDEX) return undefined;
  const [operand, index] = kind.value.args;
  const key = stringConstant(index);
  const parent = operand && key !== undefined ? fixedPath(operand, variables) : undefined;
  return parent === undefined ? undefined : `${parent}.${key}`;
}
