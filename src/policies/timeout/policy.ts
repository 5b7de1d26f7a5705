/**
 * `timeout`: limits the wait for the response head.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { duration } from "../../core/schema.ts";

export const timeout = definePolicy({
  kind: "timeout",
  doc: "Limits the wait for the response head; a response that has started is never cut off.",
  scopes: ["gateway", "route", "backend"],
  merge: "innermost",
  protection: () => "none",
  schema: z.strictObject({
    requestTimeout: duration()
      .optional()
      .describe("From the request's arrival to the response head, over all attempts. `0s`: no limit."),
    backendRequestTimeout: duration()
      .optional()
      .describe("The same for each attempt; `0s`: no limit. Default: 60s for HTTP, 300s for LLM and MCP backends."),
  }),

  compile: (config) => ({
    settings: {
      ...(config.requestTimeout === undefined ? {} : { requestTimeoutMs: config.requestTimeout }),
      ...(config.backendRequestTimeout === undefined ? {} : { backendTimeoutMs: config.backendRequestTimeout }),
    },
  }),
});
