/**
 * `{ add, set, remove }` of header modifiers: one schema and one way to apply it, for requests and responses.
 */
import { z } from "zod";
import type { HeaderList } from "../lib/http/headers.ts";
import { changeableHeaderName, headerValue } from "./schema.ts";

const values = z.record(changeableHeaderName(), headerValue());

export const headerChanges = {
  schema: z.strictObject({
    add: values.optional().describe("Headers to add; existing headers of the same name stay."),
    set: values.optional().describe("Headers to set; existing headers of the same name are replaced."),
    remove: z.array(changeableHeaderName()).optional().describe("Names of headers to remove."),
  }),

  compile(config: HeaderChanges): (headers: HeaderList) => void {
    const set = Object.entries(config.set ?? {});
    const add = Object.entries(config.add ?? {});
    const remove = config.remove ?? [];
    return (headers) => {
      for (const name of remove) headers.delete(name);
      for (const [name, value] of set) headers.set(name, value);
      for (const [name, value] of add) headers.add(name, value);
    };
  },
};

export interface HeaderChanges {
  readonly add?: Readonly<Record<string, string>> | undefined;
  readonly set?: Readonly<Record<string, string>> | undefined;
  readonly remove?: readonly string[] | undefined;
}
