/**
 * A tool call's arguments as rules read them (`mcp.tool.arguments`). They are there for every call, empty if the client
 * sent none, and never for an item of a list. Arguments that are too large or too deep to be judged, and members that a server
 * could find under another spelling, cannot be read: the whole evaluation fails, also inside `has()` and `default()`, so
 * that rules deny. They are not among what is shown of the facts.
 */
import { celMembers } from "../cel/values/members.ts";
import { UnreadableValue } from "../cel/values/values.ts";

/** What is judged of a call's arguments; more is data that no rule is about. */
const MAX_ARGUMENT_CHARS = 64 * 1024;
const MAX_ARGUMENT_VALUES = 5_000;
const MAX_ARGUMENT_DEPTH = 16;

/** Where the arguments are until somebody reads them. */
const HELD = Symbol("arguments");

interface Held {
  readonly args: unknown;
  isChecked: boolean;
  problem: string | undefined;
  view: unknown;
}

/**
 * One for all: a getter of its own would give each call's facts a shape of their own, and V8 keeps shapes, with all that
 * their getters know, until its next full collection.
 */
const ARGUMENTS: PropertyDescriptor & ThisType<{ readonly [HELD]: Held }> = {
  enumerable: false,
  get() {
    const held = this[HELD];
    if (!held.isChecked) held.problem = problemOf(held.args);
    held.isChecked = true;
    if (held.problem !== undefined) throw new UnreadableValue(held.problem);
    held.view ??= celMembers(held.args ?? {});
    return held.view;
  },
};

/** The call of a tool whose arguments nobody has read yet: few expressions do, and making them readable costs time. */
export interface CalledTool {
  readonly facts: object;
  readonly args: unknown;
}

/** Before an expression reads the facts of the tool. Those of a tool that is not the called one have no arguments. */
export function revealArguments(called: CalledTool | undefined, facts: object | undefined): void {
  if (called === undefined || called.facts !== facts || HELD in facts) return;
  withArguments(facts, called.args);
}

/** The facts with arguments that can be read by name and are not listed. */
export function withArguments<Facts extends object>(facts: Facts, args: unknown): Facts {
  const held: Held = { args, isChecked: false, problem: undefined, view: undefined };
  Object.defineProperty(facts, HELD, { value: held });
  return Object.defineProperty(facts, "arguments", ARGUMENTS);
}

function problemOf(args: unknown): string | undefined {
  if (args !== undefined && args !== null && (typeof args !== "object" || Array.isArray(args)))
    return "the arguments are not an object";
  let chars = 0;
  let values = 0;
  const look = (value: unknown, depth: number): string | undefined => {
    values += 1;
    if (values > MAX_ARGUMENT_VALUES) return `the arguments have more than ${MAX_ARGUMENT_VALUES} values`;
    if (depth > MAX_ARGUMENT_DEPTH) return `the arguments are nested deeper than ${MAX_ARGUMENT_DEPTH} levels`;
    if (typeof value === "string") chars += value.length;
    if (chars > MAX_ARGUMENT_CHARS) return `the arguments are longer than ${MAX_ARGUMENT_CHARS} characters`;
    if (typeof value !== "object" || value === null) return undefined;
    for (const [key, one] of Object.entries(value)) {
      chars += key.length;
      const problem = look(one, depth + 1);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
  return look(args, 0);
}
