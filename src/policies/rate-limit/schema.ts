/**
 * Defines the configuration schema of `rateLimit`, which is the same in the standalone document and in a GatewayPolicy.
 */
import { z } from "zod";
import { celSource, duration, exactlyOneOf, hostAndPort, missingChoice } from "../../core/schema.ts";

/** The number is limited, because every request checks every entry. */
const MAX_ENTRIES = 16;
/** The maximum is far above any real limit and far below the range in which sums of doubles become inexact. */
const MAX_LIMIT = 1_000_000_000_000;
const DEFAULT_SERVICE_TIMEOUT_MS = 100;

const mode = z
  .enum(["enforce", "shadow"])
  .describe(
    "`shadow`: counts, and records the requests that the limit would reject (`gwctl shadow report`), but rejects nothing and adds no headers. Default: enforce.",
  );

export const UNIT_MS = { Seconds: 1_000, Minutes: 60_000, Hours: 3_600_000 } as const;

export const localLimitSchema = exactlyOneOf(
  z.strictObject({
    requests: z
      .int()
      .min(1)
      .max(MAX_LIMIT)
      .optional()
      .describe("Requests allowed per unit. Exactly one of `requests` and `tokens`."),
    tokens: z
      .int()
      .min(1)
      .max(MAX_LIMIT)
      .optional()
      .describe("LLM tokens allowed per unit: input and output, including cached tokens."),
    unit: z
      .enum(["Seconds", "Minutes", "Hours"])
      .describe("The window. The limit is added to the bucket again when a window ends."),
    burst: z
      .int()
      .min(0)
      .max(MAX_LIMIT)
      .optional()
      .describe("Requests above the base limit that a full bucket holds. Only with `requests`."),
    key: celSource()
      .optional()
      .describe(
        "CEL: each distinct value gets its own bucket, for example `jwt.sub`, `apiKey.user_id`, `mcp.tool.name`, or `llm.requestModel` (token limits only).",
      ),
    mode: mode.optional(),
    reserveOutput: z
      .boolean()
      .optional()
      .describe(
        "Also charges the maximum output of the request (`max_tokens` or its equivalent) at admission, and rejects requests that do not fit. Only with `tokens`. Default: false.",
      ),
  }),
  ["requests", "tokens"],
)
  .refine((entry) => entry.tokens === undefined || entry.burst === undefined, {
    path: ["burst"],
    message: "`burst` can only be used with `requests`",
  })
  .refine((entry) => entry.tokens !== undefined || entry.reserveOutput === undefined, {
    path: ["reserveOutput"],
    message: "`reserveOutput` can only be used with `tokens`",
  });

const descriptorSchema = z.strictObject({
  entries: z
    .array(
      z.strictObject({
        key: z.string().min(1).max(256).describe("The key of the entry, as in the configuration of the service."),
        value: celSource().describe("CEL: the value of the entry, for example `jwt.sub`."),
      }),
    )
    .min(1)
    .max(MAX_ENTRIES)
    .describe("The entries of the descriptor, outermost first."),
  type: z
    .enum(["requests", "tokens"])
    .default("requests")
    .describe("What is counted: requests, or the tokens of LLM calls."),
});

export const globalLimitSchema = z.strictObject({
  host: hostAndPort("the rate limit service's gRPC address").describe(
    "`host:port` of a service that speaks Envoy's rate limit protocol v3 over gRPC.",
  ),
  domain: z.string().min(1).max(256).describe("The domain of the limits in the service's configuration."),
  descriptors: z
    .array(descriptorSchema)
    .min(1)
    .max(MAX_ENTRIES)
    .describe("What is sent to the service for each request."),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe("What happens when the service does not respond: `closed` returns 500, `open` lets the request pass."),
  mode: mode.optional(),
  timeout: duration()
    .default(DEFAULT_SERVICE_TIMEOUT_MS)
    .describe("How long a request waits for the service. Default: 100ms."),
});

export const rateLimitSchema = z
  .strictObject({
    local: z
      .array(localLimitSchema)
      .min(1)
      .max(MAX_ENTRIES)
      .optional()
      .describe("Limits counted in this process. A request must pass all of them."),
    global: globalLimitSchema.optional().describe("Limits counted by an external service, shared by all replicas."),
    unpriced: z
      .enum(["refuse", "allow"])
      .default("refuse")
      .describe(
        "Whether token limits reject requests whose cost is unknown, such as batches, videos, and WebSockets, or let them pass. Default: refuse.",
      ),
  })
  .refine((config) => config.local !== undefined || config.global !== undefined, missingChoice(["local", "global"]));

export type RateLimitConfig = z.output<typeof rateLimitSchema>;
export type LocalLimitConfig = z.output<typeof localLimitSchema>;
export type GlobalLimitConfig = z.output<typeof globalLimitSchema>;
export type DescriptorConfig = GlobalLimitConfig["descriptors"][number];
