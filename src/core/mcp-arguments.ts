/**
 * A tool call's arguments as rules read them (`mcp.tool.arguments`). They are there for every call, empty if the client
 * sent none, and never for an item of a list. What is too large or too deep to be judged cannot be read: reading it is an
 * error, also inside `has()`, so that rules deny. They are not among what is shown of the facts.
 */

/** What is judged of a call's arguments; more is data that no rule is about. */
const MAX_ARGUMENT_CHARS = 64 * 1024;
const MAX_ARGUMENT_VALUES = 5_000;
const MAX_ARGUMENT_DEPTH = 16;

/** The facts with arguments that can be read by name and are not listed. */
export function withArguments<Facts extends object>(facts: Facts, args: unknown): Facts {
  let problem: string | undefined;
  let isChecked = false;
  return Object.defineProperty(facts, "arguments", {
    enumerable: false,
    get: () => {
      if (!isChecked) problem = problemOf(args);
      isChecked = true;
      if (problem !== undefined) throw new Error(problem);
      return args ?? {};
    },
  });
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
