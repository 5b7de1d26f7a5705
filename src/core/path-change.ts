/**
 * `{ full }` or `{ prefix }` of rewrites and redirects: the whole path, or the prefix that the route matched.
 */
import { z } from "zod";
import { exactlyOneOf } from "./schema.ts";

const absolutePath = z.string().regex(/^\/[^?#\\]*$/, "expected a path that begins with / and has no query");

export const pathChange = {
  schema: exactlyOneOf(
    z.strictObject({
      full: absolutePath.optional().describe("Replaces the whole path."),
      prefix: absolutePath.optional().describe("Replaces the prefix that the route matched."),
    }),
    ["full", "prefix"],
  ),

  compile(
    config: { full?: string | undefined; prefix?: string | undefined },
    matchedPrefixes: readonly string[],
  ): (path: string) => string {
    const { full } = config;
    if (full !== undefined) return () => full;
    const replacement = (config.prefix ?? "/").replace(/\/+$/, "");
    const prefixes = matchedPrefixes.map((prefix) => prefix.replace(/\/+$/, "")).sort((a, b) => b.length - a.length);
    return (path) => {
      const matched = prefixes.find((prefix) => path === prefix || path.startsWith(`${prefix}/`)) ?? "";
      const rest = path.slice(matched.length);
      return `${replacement}${rest}` === "" ? "/" : `${replacement}${rest}`;
    };
  },
};
