/**
 * Implements `{ add, set, remove }` in header modifiers, for requests and responses.
 */
import { z } from "zod";
import type { Budget, Expression } from "../cel/expression.ts";
import type { Exchange } from "../core/exchange.ts";
import { changeableHeaderName, headerValue } from "../core/schema.ts";
import type { HeaderList } from "../http/headers.ts";

const values = z.record(changeableHeaderName(), headerValue());

export const headerChanges = {
  schema: z.strictObject({
    add: values
      .optional()
      .describe("Headers to add. Existing headers with exactly this name stay; other spellings are removed."),
    set: values.optional().describe("Headers to set. They replace existing headers in every spelling of the name."),
    remove: z.array(changeableHeaderName()).optional().describe("Names of headers to remove, in every spelling."),
  }),

  compile(config: HeaderChanges): (headers: HeaderList) => void {
    const set = Object.entries(config.set ?? {});
    const add = Object.entries(config.add ?? {});
    const remove = config.remove ?? [];
    return (headers) => {
      for (const name of remove) headers.delete(name);
      for (const [name, value] of set) headers.set(name, value);
      for (const [name, value] of add) headers.append(name, value);
    };
  },
};

export interface HeaderChanges {
  readonly add?: Readonly<Record<string, string>> | undefined;
  readonly set?: Readonly<Record<string, string>> | undefined;
  readonly remove?: readonly string[] | undefined;
}

/**
 * Converts the result of an expression to a string, with lists and maps as JSON. Returns undefined if the evaluation
 * fails or the result is null.
 */
export function evaluatedText(
  expression: Expression,
  { celAttributes }: Exchange,
  shared?: Budget,
): string | undefined {
  const result = expression.evaluate(celAttributes, shared);
  if (!result.ok || result.value === null) return undefined;
  return typeof result.value === "object" ? JSON.stringify(result.value) : String(result.value);
}
