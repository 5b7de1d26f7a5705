/**
 * `{ full }` or `{ prefix }` of rewrites and redirects: the whole path, or the prefix that the route matched.
 */
import { z } from "zod";
import { pathForMatching } from "./request-path.ts";
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
    const prefixOf = (path: string): string | undefined =>
      prefixes.find((prefix) => path === prefix || path.startsWith(`${prefix}/`));
    return (sent) => {
      // `//api/x` was matched as `/api/x`: where the prefix is not found as sent, it is there in that form.
      const path = prefixOf(sent) === undefined ? pathForMatching(sent) : sent;
      const rest = path.slice((prefixOf(path) ?? "").length);
      return `${replacement}${rest}` === "" ? "/" : `${replacement}${rest}`;
    };
  },
};
