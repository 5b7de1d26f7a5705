/**
 * What may be written about asking less: requests and tokens per minute of a deployment, and answers that are used again.
 */
import { z } from "zod";
import { duration } from "../../core/schema.ts";

/** Far above any contract. */
const MAX_PER_MINUTE = 1_000_000_000_000;
const MAX_CACHE_MS = 30 * 86_400_000;

export const perMinute = z
  .strictObject({
    requests: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Requests per minute."),
    tokens: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Tokens per minute, input and output."),
  })
  .optional()
  .describe("What this deployment may be asked per minute. When it is used up, the next one is tried, or 429.");

export const cache = z
  .strictObject({
    ttl: duration()
      .refine((ms) => ms >= 1_000 && ms <= MAX_CACHE_MS, "expected 1s to 30d")
      .describe("How long an answer may be used again, up to 30d."),
    scope: z
      .enum(["user", "shared"])
      .default("user")
      .describe("Whether each user has answers of their own, or all share them. Default: user."),
  })
  .optional()
  .describe("Answers equal requests again from the store.");
