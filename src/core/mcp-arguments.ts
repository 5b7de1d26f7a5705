/**
 * Exposes the arguments of a tool call to CEL rules (`mcp.tool.arguments`). Reading arguments that are too large or too
 * deep fails the whole evaluation.
 */
import { celMembers } from "../cel/values/members.ts";
import { UnreadableValue } from "../cel/values/values.ts";

const MAX_ARGUMENT_CHARS = 64 * 1024;
const MAX_ARGUMENT_VALUES = 5_000;
const MAX_ARGUMENT_DEPTH = 16;

const UNREAD = Symbol("arguments");

interface UnreadArguments {
  readonly args: unknown;
  isChecked: boolean;
  problem: string | undefined;
  view: unknown;
}

/** All calls share this getter, because a closure per call would give each object its own hidden class. */
const ARGUMENTS: PropertyDescriptor & ThisType<{ readonly [UNREAD]: UnreadArguments }> = {
  enumerable: false,
  get() {
    const unread = this[UNREAD];
    if (!unread.isChecked) unread.problem = findProblem(unread.args);
    unread.isChecked = true;
    if (unread.problem !== undefined) throw new UnreadableValue(unread.problem);
    unread.view ??= celMembers(unread.args ?? {});
    return unread.view;
  },
};

export interface CalledTool {
  readonly attributes: object;
  readonly args: unknown;
}

/** Adds the arguments to the attributes of the called tool, at most once. */
export function revealArguments(called: CalledTool | undefined, attributes: object | undefined): void {
  if (called === undefined || called.attributes !== attributes || UNREAD in attributes) return;
  withArguments(attributes, called.args);
}

/** Adds a non-enumerable `arguments` property to the object. */
export function withArguments<RequestAttributes extends object>(
  attributes: RequestAttributes,
  args: unknown,
): RequestAttributes {
  const unread: UnreadArguments = { args, isChecked: false, problem: undefined, view: undefined };
  Object.defineProperty(attributes, UNREAD, { value: unread });
  return Object.defineProperty(attributes, "arguments", ARGUMENTS);
}

function findProblem(args: unknown): string | undefined {
  if (args !== undefined && args !== null && (typeof args !== "object" || Array.isArray(args)))
    return "the arguments are not an object";
  let chars = 0;
  let values = 0;
  const check = (value: unknown, depth: number): string | undefined => {
    values += 1;
    if (values > MAX_ARGUMENT_VALUES) return `the arguments have more than ${MAX_ARGUMENT_VALUES} values`;
    if (depth > MAX_ARGUMENT_DEPTH) return `the arguments are nested deeper than ${MAX_ARGUMENT_DEPTH} levels`;
    if (typeof value === "string") chars += value.length;
    if (chars > MAX_ARGUMENT_CHARS) return `the arguments are longer than ${MAX_ARGUMENT_CHARS} characters`;
    if (typeof value !== "object" || value === null) return undefined;
    for (const [key, member] of Object.entries(value)) {
      chars += key.length;
      const problem = check(member, depth + 1);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
  return check(args, 0);
}
