/**
 * Defines types of the library's syntax tree, and constructors for the nodes that rewrite.ts adds.
 */
import type { parse } from "@bufbuild/cel";

export type ParsedExpression = ReturnType<typeof parse>;
export type Node = ParsedExpression["expr"];
export type CallNode = Extract<Node["exprKind"], { case: "callExpr" }>["value"];
export type ComprehensionNode = Extract<Node["exprKind"], { case: "comprehensionExpr" }>["value"];

export const INDEX = "_[_]";
export const CONDITIONAL = "_?_:_";
export const AND = "_&&_";
export const OR = "_||_";
export const NOT_STRICTLY_FALSE = "@not_strictly_false";

export function childrenOf(node: Node): Node[] {
  const kind = node.exprKind;
  switch (kind.case) {
    case "selectExpr":
      return present([kind.value.operand]);
    case "callExpr":
      return present([kind.value.target, ...kind.value.args]);
    case "listExpr":
      return kind.value.elements;
    case "structExpr":
      return kind.value.entries.flatMap((entry) =>
        present([entry.keyKind.case === "mapKey" ? entry.keyKind.value : undefined, entry.value]),
      );
    case "comprehensionExpr": {
      const { iterRange, accuInit, loopCondition, loopStep, result } = kind.value;
      return present([iterRange, accuInit, loopCondition, loopStep, result]);
    }
    default:
      return [];
  }
}

export function qualifiedName(call: CallNode): string | undefined {
  if (call.target === undefined) return undefined;
  const target = dottedName(call.target);
  return target === undefined ? undefined : `${target}.${call.function}`;
}

export function dottedName(node: Node): string | undefined {
  const kind = node.exprKind;
  if (kind.case === "identExpr") return kind.value.name;
  if (kind.case !== "selectExpr" || kind.value.testOnly || kind.value.operand === undefined) return undefined;
  const operand = dottedName(kind.value.operand);
  return operand === undefined ? undefined : `${operand}.${kind.value.field}`;
}

export function stringConstant(node: Node | undefined): string | undefined {
  if (node?.exprKind.case !== "constExpr") return undefined;
  const constant = node.exprKind.value.constantKind;
  return constant.case === "stringValue" ? constant.value : undefined;
}

export function callNode(name: string, ...args: Node[]): Node {
  return withKind({
    case: "callExpr",
    value: { $typeName: "cel.expr.Expr.Call", function: name, args },
  });
}

export function identNode(name: string): Node {
  return withKind({ case: "identExpr", value: { $typeName: "cel.expr.Expr.Ident", name } });
}

export function listNode(elements: Node[]): Node {
  return withKind({
    case: "listExpr",
    value: { $typeName: "cel.expr.Expr.CreateList", elements, optionalIndices: [] },
  });
}

export function nullNode(): Node {
  return constantNode({ case: "nullValue", value: 0 });
}

function trueNode(): Node {
  return constantNode({ case: "boolValue", value: true });
}

/** Embeds a host object in the tree as a constant. The planner passes constants through without reading them. */
export function hostNode(value: object): Node {
  return constantNode({ case: "bytesValue", value: value as unknown as Uint8Array<ArrayBuffer> });
}

/** Evaluates `step` once and binds its value or error to the variable `name`, which `result` can read. */
export function bindNode(name: string, step: Node, result: Node): Node {
  return withKind({
    case: "comprehensionExpr",
    value: {
      $typeName: "cel.expr.Expr.Comprehension",
      iterVar: "@once",
      iterVar2: "",
      iterRange: listNode([nullNode()]),
      accuVar: name,
      accuInit: nullNode(),
      loopCondition: trueNode(),
      loopStep: step,
      result,
    },
  });
}

function constantNode(constantKind: Extract<Node["exprKind"], { case: "constExpr" }>["value"]["constantKind"]): Node {
  return withKind({ case: "constExpr", value: { $typeName: "cel.expr.Constant", constantKind } });
}

function withKind(exprKind: Node["exprKind"]): Node {
  return { $typeName: "cel.expr.Expr", id: 0n, exprKind };
}

function present(nodes: readonly (Node | undefined)[]): Node[] {
  return nodes.filter((node) => node !== undefined);
}
