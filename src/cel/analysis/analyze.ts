/**
 * Analyzes a parsed expression at load. It collects the attributes and paths that the expression reads and rejects
 * unknown names, because a misspelled name would otherwise fail requests.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { namespacedName, type Signature, signatures } from "../functions/functions.ts";
import { ExpressionError } from "../syntax/expression-error.ts";
import {
  type CallNode,
  childrenOf,
  dottedName,
  INDEX,
  type Node,
  type ParsedExpression,
  stringConstant,
} from "../syntax/syntax-tree.ts";
import { ATTRIBUTE_NAMES } from "../values/attributes.ts";
import { suggestion } from "../values/nearest-name.ts";

export const MAX_NODES = peerInput("file/expression").maxItems;
export const MAX_DEPTH = 256;

const TYPE_NAMES: ReadonlySet<string> = new Set([
  ...["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"],
  ...["google.protobuf.Timestamp", "google.protobuf.Duration"],
]);
/** Returns nothing for a text that is probably a value without quotes. */
function attributeList(root: string, known: readonly string[]): string {
  return root.length > LONGEST_NAME ? "" : `; expected ${known.join(", ")}`;
}

/** Names that other products and languages use. */
const FAMILIAR: ReadonlyMap<string, string> = new Map([
  ["user", '"jwt.sub", "apiKey.name", or "basicAuth.username"'],
  ["username", '"jwt.sub", "apiKey.name", or "basicAuth.username"'],
  ["claims", '"jwt"'],
  ["token", '"jwt"'],
  ["headers", '"request.headers"'],
  ["method", '"request.method"'],
  ["path", '"request.path"'],
  ["host", '"request.host"'],
  ["ip", '"source.address"'],
  ["tool", '"mcp.tool.name"'],
  ["model", '"llm.requestModel"'],
]);
const INT64_LIMIT = 2n ** 63n;
const LONGEST_NAME = 24;

export interface Analysis {
  readonly attributes: ReadonlySet<string>;
  readonly paths: ReadonlySet<string>;
}

export function analyze(source: string, parsed: ParsedExpression): Analysis {
  const attributes = new Set<string>();
  const paths = new Set<string>();
  let nodes = 0;

  function checkSize(depth: number): void {
    if (++nodes > MAX_NODES) throw new ExpressionError(source, 0, `the expression has more than ${MAX_NODES} parts`);
    if (depth > MAX_DEPTH) {
      throw new ExpressionError(source, 0, `the expression chains more than ${MAX_DEPTH} operations`);
    }
  }

  function visit(node: Node, variables: ReadonlySet<string>, depth: number): void {
    checkSize(depth);
    const kind = node.exprKind;
    switch (kind.case) {
      case "identExpr":
      case "selectExpr":
        visitChain(node, variables, depth);
        return;
      case "callExpr":
        if (kind.value.function === INDEX) visitChain(node, variables, depth);
        else visitCall(node, kind.value, variables, depth);
        return;
      case "constExpr":
        checkRange(node);
        return;
      case "structExpr":
        if (kind.value.messageName !== "") {
          throw problemAt(node, `"${kind.value.messageName}{…}": protobuf messages are not available`);
        }
        break;
      case "comprehensionExpr": {
        const { iterRange, accuInit, loopCondition, loopStep, result, iterVar, accuVar } = kind.value;
        const inner = new Set([...variables, iterVar, accuVar]);
        for (const outside of [iterRange, accuInit]) if (outside) visit(outside, variables, depth + 1);
        for (const inside of [loopCondition, loopStep, result]) if (inside) visit(inside, inner, depth + 1);
        return;
      }
      default:
        break;
    }
    for (const child of childrenOf(node)) visit(child, variables, depth + 1);
  }

  function visitChain(node: Node, variables: ReadonlySet<string>, depth: number): void {
    let segments: string[] = [];
    let current = node;
    for (let level = depth; ; level++) {
      const kind = current.exprKind;
      if (kind.case === "selectExpr" && kind.value.operand !== undefined) {
        segments.unshift(kind.value.field);
        current = kind.value.operand;
      } else if (kind.case === "callExpr" && kind.value.function === INDEX) {
        const [operand, index] = kind.value.args;
        if (operand === undefined || index === undefined) return;
        const key = stringConstant(index);
        segments = key === undefined ? [] : [key, ...segments];
        if (key === undefined) visit(index, variables, level + 1);
        current = operand;
      } else if (kind.case === "identExpr") {
        visitRoot(current, kind.value.name.replace(/^\./, ""), segments, variables);
        return;
      } else {
        visit(current, variables, level + 1);
        return;
      }
      checkSize(level + 1);
    }
  }

  function visitRoot(node: Node, root: string, segments: readonly string[], variables: ReadonlySet<string>): void {
    if (variables.has(root)) return;
    if (ATTRIBUTE_NAMES.has(root)) {
      attributes.add(root);
      paths.add([root, ...segments].join("."));
      return;
    }
    if (TYPE_NAMES.has([root, ...segments].join("."))) return;
    const known = [...ATTRIBUTE_NAMES, ...[...variables].filter((name) => !name.startsWith("@"))];
    const meant = FAMILIAR.get(root.toLowerCase());
    const hint = meant === undefined ? suggestion(root, known) : `, did you mean ${meant}?`;
    throw problemAt(node, `unknown attribute ${quoted(root)}${hint || attributeList(root, known)}`);
  }

  function visitCall(node: Node, call: CallNode, variables: ReadonlySet<string>, depth: number): void {
    const namespaced = namespacedName(call);
    const target = namespaced === undefined ? call.target : undefined;
    // Operators have internal names that a CEL source cannot contain.
    if (/^[A-Za-z_]\w*$/.test(call.function)) checkCall(node, call, namespaced ?? call.function, target !== undefined);
    if (target !== undefined) visit(target, variables, depth + 1);
    for (const argument of call.args) visit(argument, variables, depth + 1);
  }

  function checkCall(node: Node, call: CallNode, name: string, isMethod: boolean): void {
    const signature = signatures.get(name);
    if (signature === undefined) throw unknownFunction(node, call);
    const counts = isMethod ? signature.asMethod : signature.asFunction;
    if (counts.size === 0 && !(signature.atLeast !== undefined && !isMethod)) {
      const right = isMethod ? `${name}(x)` : `x.${name}(…)`;
      throw problemAt(node, `"${name}" is called as ${right}`);
    }
    const given = call.args.length;
    if (counts.has(given) || (signature.atLeast !== undefined && given >= signature.atLeast)) {
      // The parser expands valid macros, so a remaining macro name is misused.
      if (MACRO_HINTS[name] !== undefined) throw problemAt(node, `"${name}" is written as ${MACRO_HINTS[name]}`);
      return;
    }
    throw problemAt(node, `"${name}" takes ${countText(counts, signature)}, not ${given}`);
  }

  function unknownFunction(node: Node, call: CallNode): ExpressionError {
    const target = call.target === undefined ? undefined : dottedName(call.target);
    const isNamespace = [...signatures.keys()].some((name) => name.startsWith(`${target}.`));
    const written = isNamespace ? `${target}.${call.function}` : call.function;
    return problemAt(node, `unknown function ${quoted(written)}${suggestion(written, signatures.keys())}`);
  }

  function checkRange(node: Node): void {
    if (node.exprKind.case !== "constExpr") return;
    const { constantKind } = node.exprKind.value;
    const isInt = constantKind.case === "int64Value";
    const tooLarge =
      (isInt && (constantKind.value >= INT64_LIMIT || constantKind.value < -INT64_LIMIT)) ||
      (constantKind.case === "uint64Value" && constantKind.value >= 2n * INT64_LIMIT);
    if (tooLarge) throw problemAt(node, "the number does not fit into 64 bits");
  }

  function problemAt(node: Node, problem: string): ExpressionError {
    return new ExpressionError(source, offsetOf(source, parsed, node), problem);
  }

  visit(parsed.expr, new Set(), 0);
  return { attributes, paths };
}

/** Returns the position of a node in the source. For method calls, the parser reports the dot before the name. */
export function offsetOf(source: string, parsed: ParsedExpression, node: Node): number {
  const offset = parsed.sourceInfo?.positions[node.id.toString()] ?? 0;
  return offset + (/^[\s.]*/.exec(source.slice(offset))?.[0].length ?? 0);
}

const MACRO_HINTS: Readonly<Record<string, string>> = {
  has: "has(a.b): its argument must end in a field name",
  all: "list.all(name, condition)",
  exists: "list.exists(name, condition)",
  exists_one: "list.exists_one(name, condition)",
  existsOne: "list.existsOne(name, condition)",
  filter: "list.filter(name, condition)",
  map: "list.map(name, expression)",
};

function countText(counts: ReadonlySet<number>, signature: Signature): string {
  if (signature.atLeast !== undefined) return `at least ${signature.atLeast} argument`;
  const sorted = [...counts].sort((a, b) => a - b);
  const plural = sorted.length === 1 && sorted[0] === 1 ? "argument" : "arguments";
  return `${sorted.join(" or ")} ${plural}`;
}

/** An unquoted API key parses as an identifier, so messages do not repeat long names. */
function quoted(name: string): string {
  if (name.length <= LONGEST_NAME) return JSON.stringify(name);
  return `of ${name.length} characters (a fixed text needs quotes inside the expression)`;
}
