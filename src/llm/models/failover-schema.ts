/**
 * What may be written about failover: which failures make the next provider try, and how long a failed one rests.
 */
import { z } from "zod";
import { duration } from "../../core/schema.ts";

const FAILOVER_CAUSES = ["rateLimit", "serverError", "timeout", "authentication", "notFound", "contextLength"] as const;

export const failoverOn = z
  .array(
    z.union([z.enum(FAILOVER_CAUSES), z.int().min(400).max(599)], {
      error: `expected a status from 400 to 599, or one of ${FAILOVER_CAUSES.join(", ")}`,
    }),
  )
  .optional()
  .describe(
    "Which answers send a call on to the next provider: `rateLimit` (429), `serverError` (5xx), `timeout` (408), `authentication` (401 and 403, unless the client's own key was used), `notFound` (404), `contextLength` (a prompt that is too long for the model), or a status. Default: all of these words. Providers that cannot be reached or are too slow are always passed over.",
  );

export const cooldown = z
  .strictObject({
    allowedFailures: z.int().min(0).max(1000).default(0).describe("Failures in a row without a pause. Default: 0."),
    initial: duration().default(1_000).describe("The first pause; each further failure doubles it. Default: 1s."),
    max: duration().default(30_000).describe("The longest pause. Default: 30s."),
    maxRetryAfter: duration().default(600_000).describe("The longest `retry-after` that is followed. Default: 10m."),
  })
  .prefault({})
  .describe("How long a provider that failed is tried last.");

export type FailoverCause = (typeof FAILOVER_CAUSES)[number] | number;
