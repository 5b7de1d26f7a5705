/**
 * Provides a fast path for common rules: comparisons of string attributes with constants or with each other (`==`,
 * `!=`, `in`, `startsWith`, `endsWith`, `contains`) and of attributes with int constants (`<`, `<=`, `>`, `>=`),
 * combined with `&&`, `||`, and `!`. If a field is missing, has another type, or is too long, the rule returns undefined.
 */
import { type CelList, type CelMap, isCelError, isCelList, isCelMap } from "@bufbuild/cel";
import { AND, INDEX, type Node, OR, stringConstant } from "./syntax/syntax-tree.ts";
import type { AttributeSource } from "./values/attribute-source.ts";
import { toCel } from "./values/values.ts";

/** Returns undefined if the library must evaluate the expression. Exceptions from attribute getters propagate. */
type QuickRule = (source: AttributeSource) => boolean | undefined;

type Reader = (source: AttributeSource) => unknown;
type TextTest = (text: string, other: string) => boolean;
type OrderTest = (number: number, constant: number) => boolean;

const TEXT_CHARS = 4096;
const LIST_ITEMS = 100;

const METHODS: ReadonlyMap<string, TextTest> = new Map<string, TextTest>([
  ["startsWith", (text, other) => text.startsWith(other)],
  ["endsWith", (text, other) => text.endsWith(other)],
  ["contains", (text, other) => text.includes(other)],
]);

const ORDERS: ReadonlyMap<string, OrderTest> = new Map<string, OrderTest>([
  ["_<_", (number, constant) => number < constant],
  ["_<=_", (number, constant) => number <= constant],
  ["_>_", (number, constant) => number > constant],
  ["_>=_", (number, constant) => number >= constant],
]);

export function quickRule(node: Node): QuickRule | undefined {
  if (node.exprKind.case !== "callExpr") return undefined;
  const { function: name, target, args } = node.exprKind.value;
  const [first, second] = args;
  if (target !== undefined) return first && args.length === 1 ? textRule(target, first, METHODS.get(name)) : undefined;
  if (first === undefined) return undefined;
  if (second === undefined) return name === "!_" ? negated(quickRule(first)) : undefined;
  switch (name) {
    case AND:
      return both(quickRule(first), quickRule(second), false);
    case OR:
      return both(quickRule(first), quickRule(second), true);
    case "_==_":
      return textRule(first, second, (a, b) => a === b);
    case "_!=_":
      return textRule(first, second, (a, b) => a !== b);
    case "@in":
      return memberRule(first, second);
    default:
      return orderRule(first, second, ORDERS.get(name));
  }
}

function negated(rule: QuickRule | undefined): QuickRule | undefined {
  if (rule === undefined) return undefined;
  return (source) => {
    const answer = rule(source);
    return answer === undefined ? undefined : !answer;
  };
}

/** `decides` is the operand value that determines the result: false for `&&`, true for `||`. */
function both(a: QuickRule | undefined, b: QuickRule | undefined, decides: boolean): QuickRule | undefined {
  if (a === undefined || b === undefined) return undefined;
  return (source) => {
    const answer = a(source);
    // If the first operand is undecided, the library evaluates both, because the second may absorb an error of the
    // first.
    return answer === undefined || answer === decides ? answer : b(source);
  };
}

function textRule(a: Node, b: Node, test: TextTest | undefined): QuickRule | undefined {
  const text = readerOf(a);
  const other = readerOf(b);
  if (text === undefined || other === undefined || test === undefined) return undefined;
  return (source) => {
    const one = text(source);
    const two = other(source);
    return isText(one) && isText(two) ? test(one, two) : undefined;
  };
}

/** Compares an attribute with an int constant. */
function orderRule(a: Node, b: Node, test: OrderTest | undefined): QuickRule | undefined {
  const number = readerOf(a);
  const constant = intConstant(b);
  if (number === undefined || constant === undefined || test === undefined) return undefined;
  return (source) => {
    const value = number(source);
    return Number.isSafeInteger(value) ? test(value as number, constant) : undefined;
  };
}

/** Returns undefined for an int that is not a safe number. */
function intConstant({ exprKind }: Node): number | undefined {
  const constant = exprKind.case === "constExpr" ? exprKind.value.constantKind : undefined;
  const number = constant?.case === "int64Value" ? Number(constant.value) : undefined;
  return Number.isSafeInteger(number) ? number : undefined;
}

function memberRule(item: Node, group: Node): QuickRule | undefined {
  const text = readerOf(item);
  const constants = constantsOf(group);
  const members = constants === undefined ? readerOf(group) : undefined;
  if (text === undefined || (constants === undefined && members === undefined)) return undefined;
  return (source) => {
    const one = text(source);
    if (!isText(one)) return undefined;
    return constants === undefined ? isMember(one, members?.(source)) : constants.has(one);
  };
}

function isMember(text: string, group: unknown): boolean | undefined {
  if (Array.isArray(group)) return isAmong(text, group.length, (i) => group[i]);
  const value = read(group);
  if (isList(value)) return isAmong(text, value.size, (i) => value.get(i));
  const found = isMap(value) ? value.has(text) : undefined;
  return typeof found === "boolean" ? found : undefined;
}

function isAmong(text: string, size: number, itemAt: (index: number) => unknown): boolean | undefined {
  if (size > LIST_ITEMS) return undefined;
  for (let i = 0; i < size; i++) {
    const item = itemAt(i);
    if (!isText(item)) return undefined;
    if (item === text) return true;
  }
  return false;
}

function constantsOf(node: Node): ReadonlySet<string> | undefined {
  if (node.exprKind.case !== "listExpr") return undefined;
  const texts = node.exprKind.value.elements.map(stringConstant);
  return texts.every((text) => text !== undefined) ? new Set(texts) : undefined;
}

function readerOf(node: Node): Reader | undefined {
  const constant = stringConstant(node);
  if (constant !== undefined) return () => constant;
  const kind = node.exprKind;
  if (kind.case === "identExpr") {
    const { name } = kind.value;
    return (source) => (source as unknown as Record<string, unknown>)[name];
  }
  if (kind.case === "selectExpr") {
    const { operand, field, testOnly } = kind.value;
    return operand === undefined || testOnly ? undefined : fieldOf(operand, field);
  }
  if (kind.case !== "callExpr" || kind.value.function !== INDEX || kind.value.args.length !== 2) return undefined;
  const [operand, index] = kind.value.args;
  const field = stringConstant(index);
  return operand === undefined || field === undefined ? undefined : fieldOf(operand, field);
}

function fieldOf(operand: Node, field: string): Reader | undefined {
  const owner = stringConstant(operand) === undefined ? readerOf(operand) : undefined;
  if (owner === undefined) return undefined;
  return (source) => memberOf(owner(source), field);
}

/** Reads plain objects directly, because a map around each of them would cost more than the comparison. */
function memberOf(owner: unknown, field: string): unknown {
  if (typeof owner !== "object" || owner === null) return undefined;
  if (Object.getPrototypeOf(owner) === Object.prototype)
    return Object.hasOwn(owner, field) ? (owner as Record<string, unknown>)[field] : undefined;
  const map = read(owner);
  const value = isMap(map) ? map.get(field) : undefined;
  return isCelError(value) ? undefined : value;
}

function read(value: unknown): unknown {
  return value === undefined ? undefined : toCel(value);
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value.length <= TEXT_CHARS;
}

function isMap(value: unknown): value is CelMap {
  return typeof value === "object" && value !== null && isCelMap(value);
}

function isList(value: unknown): value is CelList {
  return typeof value === "object" && value !== null && isCelList(value);
}
