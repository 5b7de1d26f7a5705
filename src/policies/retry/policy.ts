/**
 * `retry`: retries when the backend cannot be reached or responds with a listed status. A request whose body has
 * already been streamed is never retried. Methods that are not idempotent are retried only if no connection could be
 * opened or the status is listed.
 */
import { z } from "zod";
import { definePolicy } from "../../core/policy.ts";
import { duration } from "../../core/schema.ts";

const MAX_ATTEMPTS = 10;
const DEFAULT_BACKOFF_MS = 25;

export const retry = definePolicy({
  kind: "retry",
  doc: "Retries if the backend cannot be reached, closes the connection early, or responds with a listed status.",
  scopes: ["gateway", "route"],
  merge: "innermost",
  schema: z.strictObject({
    attempts: z.int().min(1).max(MAX_ATTEMPTS).default(1).describe("Attempts after the first (1 to 10)."),
    backoff: duration()
      .optional()
      .describe("The wait before the first retry. It doubles for each further retry. Default: 25ms."),
    codes: z
      .array(z.int().min(400).max(599))
      .optional()
      .describe("Response statuses that count as a failure, for example `[502, 503]`."),
  }),

  compile: (config) => ({
    settings: {
      retry: {
        attempts: config.attempts,
        backoffMs: config.backoff ?? DEFAULT_BACKOFF_MS,
        codes: new Set(config.codes ?? []),
      },
    },
  }),
});
