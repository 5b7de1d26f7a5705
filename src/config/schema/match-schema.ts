/**
 * `matches` of a route: path, method, headers and query parameters of the requests that it takes. Rejects regular expressions
 * that cannot be matched in linear time.
 */
import { z } from "zod";
import { linearRegex } from "../../base/regex.ts";
import { exactlyOneOf } from "../../core/schema.ts";
import { pathFault } from "../../http/request-path.ts";

const regex = z.string().superRefine((source, context) => {
  try {
    linearRegex(source);
  } catch (error) {
    context.addIssue({
      code: "custom",
      message: `not a valid regular expression (RE2 syntax): ${(error as Error).message}`,
    });
  }
});

const valueMatch = exactlyOneOf(
  z.strictObject({
    name: z.string().min(1).describe("The name of the header or query parameter."),
    exact: z.string().optional().describe("The whole value."),
    regex: regex.optional().describe("A regular expression for the whole value (RE2 syntax)."),
  }),
  ["exact", "regex"],
);

const absolutePath = z
  .string()
  .startsWith("/", "a path begins with /")
  .superRefine((path, context) => {
    const fault = /[?#]/.test(path) ? "a query or fragment in the path" : pathFault(path);
    if (fault !== undefined) context.addIssue({ code: "custom", message: `no request can match ${fault}` });
  });

export const routeMatch = z.strictObject({
  path: exactlyOneOf(
    z.strictObject({
      exact: absolutePath.optional().describe("The whole path."),
      pathPrefix: absolutePath
        .optional()
        .describe("A prefix of whole segments: `/a` matches `/a` and `/a/b`, not `/ab`."),
      regex: regex.optional().describe("A regular expression for the whole path (RE2 syntax)."),
    }),
    ["exact", "pathPrefix", "regex"],
  )
    .optional()
    .describe("Default: the prefix `/`."),
  method: z
    .string()
    .regex(/^[A-Z]+$/, "write methods in upper case")
    .optional()
    .describe("The request's method, for example `POST`."),
  headers: z.array(valueMatch).optional().describe("Required headers; all must match."),
  query: z.array(valueMatch).optional().describe("Required query parameters; all must match."),
});
