/**
 * `requestRedirect`: responds with a redirect.
 */

import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { emptyReply } from "../../core/reply.ts";
import { authority } from "../../core/schema.ts";
import { withoutPort } from "../../http/host.ts";
import { canonicalPath } from "../../http/request-path.ts";
import { pathChange } from "../../policy-parts/path-change.ts";

const DEFAULT_STATUS = 302;

export const requestRedirect = definePolicy({
  kind: "requestRedirect",
  doc: "Redirects to another scheme, authority or path; the query is kept.",
  scopes: ["route"],
  protection: () => "none",
  schema: z.strictObject({
    scheme: z.enum(["http", "https"]).optional().describe("Default: the one of the request."),
    authority: authority().optional().describe("Default: the one of the request."),
    port: z
      .int()
      .min(1)
      .max(65_535)
      .optional()
      .describe("Default: the port of the authority, or the default port of a new scheme."),
    path: pathChange.schema.optional(),
    status: z
      .union([z.literal(301), z.literal(302), z.literal(303), z.literal(307), z.literal(308)])
      .default(DEFAULT_STATUS),
  }),

  compile(config, env) {
    const changePath = config.path ? pathChange.compile(config.path, env.matchedPrefixes) : undefined;
    return {
      shape: {
        head({ request }) {
          const path = changePath ? changePath(request.path) : canonicalPath(request.path);
          const query = request.query === "" ? "" : `?${request.query}`;
          const scheme = config.scheme ?? request.scheme;
          const authority = config.authority ?? (scheme === request.scheme ? request.host : withoutPort(request.host));
          const target = config.port === undefined ? authority : withPort(authority, config.port, scheme);
          // An HTTP/1.0 request may have no Host header. The target is then relative.
          const origin = target === "" ? "" : `${scheme}://${target}`;
          return emptyReply(config.status, { location: `${origin}${path}${query}` });
        },
      },
    };
  },
});

function withPort(authority: string, port: number, scheme: "http" | "https"): string {
  const host = withoutPort(authority);
  if (host === "") return "";
  return port === (scheme === "https" ? 443 : 80) ? host : `${host}:${port}`;
}
