/**
 * Rewrites an analyzed tree for the planner. It expands `default()` and `coalesce()`, because the library never passes
 * errors to functions, compiles constant patterns, and adds the cost accounting of budget.ts. The input tree is not
 * modified, because explain.ts prints from it.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import type { Budget, Loop, TextCost } from "../functions/budget.ts";
import { namespacedName } from "../functions/functions.ts";
import {
  APPEND,
  type BoundRegex,
  IS_NOTHING,
  IS_NULL,
  MATCHES,
  MATCHES_COMPUTED,
  PAY_FOR_COPY,
  PAY_FOR_LOOP,
  PAY_FOR_PARTS,
  PAY_FOR_REPLACEMENTS,
  PAY_FOR_TEXT,
  PAY_FOR_VALUE,
  REGEX_REPLACE,
  REGEX_REPLACE_COMPUTED,
} from "../functions/host-functions.ts";
import { compileRegex, type Regex } from "../functions/regex.ts";
import {
  AND,
  bindNode,
  type CallNode,
  CONDITIONAL,
  type ComprehensionNode,
  callNode,
  childrenOf,
  hostNode,
  INDEX,
  identNode,
  listNode,
  NOT_STRICTLY_FALSE,
  type Node,
  nullNode,
  OR,
  stringConstant,
} from "../syntax/syntax-tree.ts";

const PATTERN = peerInput("file/pattern");

/** Calls of these functions inside a loop are not charged for the size of their operands. */
const CHEAP: ReadonlySet<string> = new Set([
  ...[AND, OR, CONDITIONAL, INDEX, NOT_STRICTLY_FALSE, "!_", "type", "dyn"],
  ...["-_", "_-_", "_*_", "_/_", "_%_", "_<_", "_<=_", "_>_", "_>=_"],
]);

const RESULT = "@result";

/** These functions build new strings or lists from their operands. */
const COPYING: ReadonlySet<string> = new Set(
  "_+_ charAt format indexOf join lastIndexOf lowerAscii quote replace split substring trim upperAscii".split(" "),
);

/** How many nodes take as long as one call, for functions that are slower on small operands than a node. */
const SLOW_CALLS: ReadonlyMap<string, number> = new Map([
  ["ip", 40],
  ["cidr", 40],
  ["containsIP", 40],
  ["containsCIDR", 40],
  ["json", 10],
  ["toJson", 50],
  ["timestamp", 30],
  ["duration", 30],
  ["encode", 30],
  ["decode", 30],
  ["bytes", 10],
  ["string", 10],
  ["int", 10],
  ["uint", 10],
  ["double", 10],
  ["format", 15],
]);
const ZONE_NODES = 1_000;

/**
 * How many characters of their operands cost one unit outside of loops, for functions that take long for a large text.
 * The whole budget then takes less than 50 ms.
 */
const CHARACTERS_PER_UNIT: ReadonlyMap<string, number> = new Map([
  ...["contains", "indexOf", "lastIndexOf", "_+_", "size"].map((name) => [name, 256] as const),
  ...["bytes", "charAt", "substring", "base64.decode", "base64Decode"].map((name) => [name, 128] as const),
  ...["lowerAscii", "upperAscii", "join", "double", "json", "toJson", "url.decode"].map((name) => [name, 64] as const),
  ...["base64.encode", "base64Encode", "sha256.encode", "sha1.encode", "md5.encode", "ip", "cidr"].map(
    (name) => [name, 64] as const,
  ),
  ...["trim", "unvalidatedJwtPayload", "containsIP", "containsCIDR", "string"].map((name) => [name, 32] as const),
  ["url.encode", 16],
  ["form.encode", 2],
  ["strings.quote", 2],
  ["format", 2],
  // The time grows faster than the number of digits.
  ["int", 0.25],
  ["uint", 0.25],
]);

const READS_ITEMS: ReadonlySet<string> = new Set(["join", "toJson", "form.encode", "format"]);

/** Roots of attributes whose size is that of a request head. */
const SHORT_ROOTS: ReadonlySet<string> = new Set(["source", "client", "jwt", "apiKey", "basicAuth"]);
const LARGE_FIELDS: ReadonlySet<string> = new Set(["body"]);

export interface RewriteOptions {
  readonly budget: Budget;
  readonly refuse: (node: Node, problem: string) => never;
}

export function rewrite(root: Node, { budget, refuse }: RewriteOptions): Node {
  function visit(node: Node, inLoop: boolean): Node {
    const kind = node.exprKind;
    switch (kind.case) {
      case "selectExpr":
        if (kind.value.operand === undefined) return node;
        return { ...node, exprKind: { ...kind, value: { ...kind.value, operand: visit(kind.value.operand, inLoop) } } };
      case "listExpr": {
        const elements = kind.value.elements.map((element) => visit(element, inLoop));
        return { ...node, exprKind: { ...kind, value: { ...kind.value, elements } } };
      }
      case "structExpr": {
        const entries = kind.value.entries.map((entry) => visitEntry(entry, inLoop));
        return { ...node, exprKind: { ...kind, value: { ...kind.value, entries } } };
      }
      case "comprehensionExpr":
        return { ...node, exprKind: { ...kind, value: visitLoop(kind.value, inLoop) } };
      case "callExpr":
        return visitCall(node, kind.value, inLoop);
      default:
        return node;
    }
  }

  function visitEntry(entry: MapEntry, inLoop: boolean): MapEntry {
    const { keyKind, value } = entry;
    return {
      ...entry,
      keyKind: keyKind.case === "mapKey" ? { case: "mapKey", value: visit(keyKind.value, inLoop) } : keyKind,
      ...(value === undefined ? {} : { value: visit(value, inLoop) }),
    };
  }

  function visitLoop(loop: ComprehensionNode, inLoop: boolean): ComprehensionNode {
    const { iterRange, loopCondition, loopStep, result } = loop;
    if (!iterRange || !loopCondition || !loopStep || !result) return loop;
    const nodesPerRound = countNodes(loopCondition) + countNodes(loopStep);
    const account = hostNode({ budget, nodesPerRound } satisfies Loop);
    return {
      ...loop,
      iterRange: callNode(PAY_FOR_LOOP, account, visit(iterRange, inLoop)),
      loopCondition: visit(loopCondition, true),
      loopStep: visit(loopStep, true),
      result: visit(result, inLoop),
    };
  }

  function visitCall(node: Node, call: CallNode, inLoop: boolean): Node {
    const args = call.args.map((argument) => visit(argument, inLoop));
    const [first, second] = args;
    const namespaced = namespacedName(call);
    switch (namespaced ?? (call.target === undefined ? call.function : undefined)) {
      case "default":
        if (first && second) return fallback(first, second);
        break;
      case "coalesce":
        return coalesce(args, 0);
      case "math.least":
      case "math.greatest":
      case "min":
      case "max":
        if (args.length > 1) return withCall(node, call, [listNode(args)], call.target);
        break;
      case "_+_":
        if (isResult(first) && second !== undefined) {
          const item = onlyElement(second);
          if (item !== undefined) return callNode(APPEND, identNode(RESULT), item);
        }
        break;
    }
    if (namespaced !== undefined)
      return withCall(node, call, args.map(inLoop ? copied : forText(namespaced)), call.target);

    const target = call.target === undefined ? undefined : visit(call.target, inLoop);
    const operands = target === undefined ? args : [target, ...args];
    if (call.function === "matches") return withPattern(operands, MATCHES, MATCHES_COMPUTED);
    if (call.function === "regexReplace") return withPattern(operands, REGEX_REPLACE, REGEX_REPLACE_COMPUTED);
    if (!inLoop) return withTextCost(node, call, args, target);
    if (CHEAP.has(call.function) || isComparisonWithConstant(call)) return withCall(node, call, args, target);
    const pay = COPYING.has(call.function) ? copied : paid;
    const charged = withCall(node, call, args.map(pay), target === undefined ? undefined : pay(target));
    return call.function === "split" ? paid(charged) : charged;
  }

  /** Charges before the call, which may take long for a single large text. */
  function withTextCost(node: Node, call: CallNode, args: Node[], target: Node | undefined): Node {
    const [first, ...rest] = args;
    if (target !== undefined && first !== undefined && (call.function === "replace" || call.function === "split")) {
      const [text, search] = [identNode("@text"), identNode("@search")];
      const times = call.function === "replace" ? rest.slice(1) : [];
      const pay = call.function === "replace" ? PAY_FOR_REPLACEMENTS : PAY_FOR_PARTS;
      const charged = callNode(pay, hostNode(budget), text, search, ...times);
      return bindNode("@text", target, bindNode("@search", first, withCall(node, call, [search, ...rest], charged)));
    }
    const pay = forText(call.function);
    return withCall(node, call, args.map(pay), target === undefined ? undefined : pay(target));
  }

  function forText(name: string): (operand: Node) => Node {
    const charactersPerUnit = CHARACTERS_PER_UNIT.get(name);
    if (charactersPerUnit === undefined) return (operand) => operand;
    const cost: TextCost = { budget, charactersPerUnit, isDeep: READS_ITEMS.has(name) };
    return (operand) => (isShort(operand) ? operand : callNode(PAY_FOR_TEXT, hostNode(cost), operand));
  }

  /** `operands` holds the string, the pattern, and any further arguments, for both the function and the method form. */
  function withPattern(operands: Node[], bound: string, computed: string): Node {
    const [text, pattern, ...rest] = operands;
    if (text === undefined || pattern === undefined) return nullNode();
    const constant = stringConstant(pattern);
    if (constant === undefined) return callNode(computed, hostNode(budget), text, pattern, ...rest);
    return callNode(
      bound,
      hostNode({ regex: compileAt(pattern, constant), budget } satisfies BoundRegex),
      text,
      ...rest,
    );
  }

  function compileAt(node: Node, pattern: string): Regex {
    try {
      return compileRegex(PATTERN, pattern);
    } catch (error) {
      return refuse(node, error instanceof Error ? error.message : "the pattern is not valid");
    }
  }

  function paid(node: Node): Node {
    return node.exprKind.case === "constExpr" ? node : callNode(PAY_FOR_VALUE, hostNode(budget), node);
  }

  function copied(node: Node): Node {
    return node.exprKind.case === "constExpr" ? node : callNode(PAY_FOR_COPY, hostNode(budget), node);
  }

  return visit(root, false);
}

type MapEntry = Extract<Node["exprKind"], { case: "structExpr" }>["value"]["entries"][number];

function fallback(first: Node, second: Node): Node {
  const isError = callNode(NOT_STRICTLY_FALSE, callNode(IS_NOTHING, identNode("@value")));
  return bindNode("@value", first, callNode(CONDITIONAL, isError, second, identNode("@value")));
}

/**
 * Builds a node that returns the first operand that is neither an error nor null. If there is none, null takes
 * precedence over an error.
 */
function coalesce(operands: readonly Node[], index: number): Node {
  const operand = operands[index];
  if (operand === undefined) return nullNode();
  const name = `@value${index}`;
  const isLast = index === operands.length - 1;
  const otherwise = isLast
    ? callNode(CONDITIONAL, anyNull(operands.length), nullNode(), identNode(name))
    : coalesce(operands, index + 1);
  const isUnusable = callNode(NOT_STRICTLY_FALSE, callNode(IS_NULL, identNode(name)));
  return bindNode(name, operand, callNode(CONDITIONAL, isUnusable, otherwise, identNode(name)));
}

/** Builds a node that is true if any operand is null, because in `||` a `true` operand absorbs errors of the others. */
function anyNull(count: number): Node {
  return Array.from({ length: count }, (_, index) => callNode(IS_NULL, identNode(`@value${index}`))).reduce(
    (left, right) => callNode(OR, left, right),
  );
}

function withCall(node: Node, call: CallNode, args: Node[], target: Node | undefined): Node {
  const { target: _old, ...rest } = call;
  return {
    ...node,
    exprKind: { case: "callExpr", value: { ...rest, args, ...(target === undefined ? {} : { target }) } },
  };
}

function isComparisonWithConstant(call: CallNode): boolean {
  const isComparison = call.function === "_==_" || call.function === "_!=_";
  return isComparison && call.args.some((argument) => argument.exprKind.case === "constExpr");
}

function isResult(node: Node | undefined): boolean {
  return isIdent(node, RESULT);
}

function onlyElement(node: Node): Node | undefined {
  const elements = node.exprKind.case === "listExpr" ? node.exprKind.value.elements : [];
  return elements.length === 1 ? elements[0] : undefined;
}

/** Returns whether the node is a constant or an attribute of the head of a request. */
function isShort(node: Node | undefined): boolean {
  const kind = node?.exprKind;
  switch (kind?.case) {
    case "constExpr":
      return true;
    case "selectExpr": {
      const { operand, field } = kind.value;
      if (isIdent(operand, "request")) return !LARGE_FIELDS.has(field);
      return isShort(operand);
    }
    case "callExpr":
      return kind.value.function === INDEX && isShort(kind.value.args[0]);
    case "identExpr":
      return SHORT_ROOTS.has(kind.value.name);
    default:
      return false;
  }
}

function isIdent(node: Node | undefined, name: string): boolean {
  return node?.exprKind.case === "identExpr" && node.exprKind.value.name === name;
}

/** Excludes the bodies of nested loops, because those loops pay for them when they run. */
function countNodes(node: Node): number {
  if (node.exprKind.case === "callExpr") {
    const { function: name, args } = node.exprKind.value;
    const slow = args.length === 1 && name.startsWith("get") ? ZONE_NODES : (SLOW_CALLS.get(name) ?? 1);
    return childrenOf(node).reduce((count, child) => count + countNodes(child), slow);
  }
  if (node.exprKind.case === "comprehensionExpr") {
    const { iterRange } = node.exprKind.value;
    return 1 + (iterRange === undefined ? 0 : countNodes(iterRange));
  }
  return childrenOf(node).reduce((count, child) => count + countNodes(child), 1);
}
