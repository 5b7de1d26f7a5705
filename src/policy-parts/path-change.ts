/**
 * Implements the `{ full }` and `{ prefix }` options of rewrites and redirects, which replace the whole path or the
 * prefix that the route matched. The result is a canonical path.
 */
import { z } from "zod";
import { GatewayError } from "../core/errors.ts";
import { exactlyOneOf } from "../core/schema.ts";
import { canonicalPath, pathFault } from "../http/request-path.ts";

const absolutePath = z
  .string()
  .regex(/^\/[^?#\\]*$/, "expected a path that begins with / and has no query")
  .superRefine((path, context) => {
    const fault = pathFault(path);
    if (fault !== undefined) context.addIssue({ code: "custom", message: `no server would accept ${fault}` });
  });

/** A server that decodes this prefix could treat the next segment as a host name. */
const LEADING_SEPARATOR = /^\/%(?:25)*(?:2f|5c)/i;

export const pathChange = {
  schema: exactlyOneOf(
    z.strictObject({
      full: absolutePath.optional().describe("Replaces the whole path."),
      prefix: absolutePath.optional().describe("Replaces the prefix that the route matched."),
    }),
    ["full", "prefix"],
  ),

  /**
   * `matchedPrefixes` must be canonical. The returned function throws a GatewayError if the new path begins with an
   * encoded separator.
   */
  compile(
    config: { full?: string | undefined; prefix?: string | undefined },
    matchedPrefixes: readonly string[],
  ): (path: string) => string {
    if (config.full !== undefined) {
      const full = canonicalPath(config.full);
      return () => full;
    }
    const replacement = canonicalPath(config.prefix ?? "/").replace(/\/$/, "");
    const prefixes = matchedPrefixes.map((prefix) => prefix.replace(/\/$/, "")).sort((a, b) => b.length - a.length);
    return (given) => {
      // `OPTIONS *` has no path.
      if (!given.startsWith("/")) return given;
      const path = canonicalPath(given);
      const prefix = prefixes.find((candidate) => path === candidate || path.startsWith(`${candidate}/`)) ?? "";
      const changed = canonicalPath(`${replacement}${path.slice(prefix.length)}`);
      if (LEADING_SEPARATOR.test(changed))
        throw new GatewayError("bad_request", { message: "bad request: the path begins with an encoded separator" });
      return changed === "" ? "/" : changed;
    };
  },
};
