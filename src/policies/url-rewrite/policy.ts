/**
 * `urlRewrite`: changes the path or the authority of the request to the backend. Route matching and the policies that
 * run before this one use the original path.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { authority } from "../../core/schema.ts";
import { pathChange } from "../../policy-parts/path-change.ts";

export const urlRewrite = definePolicy({
  kind: "urlRewrite",
  doc: "Rewrites the path or the authority (Host) of the request before it goes to the backend.",
  scopes: ["route", "backend"],
  protection: () => "none",
  schema: z.strictObject({
    authority: authority().optional().describe("The Host header for the backend."),
    path: pathChange.schema.optional(),
  }),

  compile(config, env) {
    const changePath = config.path ? pathChange.compile(config.path, env.matchedPrefixes) : undefined;
    return {
      shape: {
        head({ request }) {
          if (config.authority !== undefined) request.host = config.authority;
          if (changePath) request.path = changePath(request.path);
          return undefined;
        },
      },
    };
  },
});
