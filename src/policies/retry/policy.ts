/**
 * `retry`: retries when the backend cannot be reached or sends a response that counts as a failure. A request whose body
 * has already been streamed is never retried. Methods that are not idempotent are retried only if no connection could
 * be opened or the response counts as a failure.
 */
import { z } from "zod";
import { attributesWithResponse } from "../../core/cel-attributes.ts";
import { ConfigError } from "../../core/config-error.ts";
import { bodyFor, definePolicy } from "../../core/policy.ts";
import { celSource, duration } from "../../core/schema.ts";

const MAX_ATTEMPTS = 10;
const DEFAULT_BACKOFF_MS = 25;

export const retry = definePolicy({
  kind: "retry",
  doc: "Retries if the backend cannot be reached, closes the connection early, or sends a response that counts as a failure.",
  scopes: ["gateway", "route"],
  merge: "innermost",
  protection: () => "none",
  schema: z.strictObject({
    attempts: z.int().min(1).max(MAX_ATTEMPTS).default(1).describe("Attempts after the first (1 to 10)."),
    backoff: duration()
      .optional()
      .describe("The wait before the first retry. It doubles for each further retry. Default: 25ms."),
    codes: z
      .array(z.int().min(400).max(599))
      .optional()
      .describe("Response statuses that count as a failure, for example `[502, 503]`."),
    condition: celSource()
      .optional()
      .describe(
        'A CEL expression that is true for responses that count as a failure, in addition to `codes`, for example `response.headers["x-retry"] == "yes"`.',
      ),
    precondition: celSource()
      .optional()
      .describe(
        'A CEL expression that is true for requests that may be retried, for example `request.method == "GET"`. Default: all.',
      ),
  }),

  compile(config, env) {
    const condition = config.condition === undefined ? undefined : env.cel(config.condition);
    const precondition = config.precondition === undefined ? undefined : env.cel(config.precondition);
    if (condition?.reads("response.body") === true)
      throw new ConfigError(
        undefined,
        "condition",
        "the response body is not available when the condition is evaluated",
      );
    return {
      shape: bodyFor([condition, precondition]),
      settings: {
        retry: {
          attempts: config.attempts,
          backoffMs: config.backoff ?? DEFAULT_BACKOFF_MS,
          codes: new Set(config.codes ?? []),
          ...(condition === undefined
            ? {}
            : {
                condition(exchange, status, headers) {
                  const result = condition.evaluate(attributesWithResponse(exchange, { status, headers }));
                  return result.ok && result.value === true;
                },
              }),
          ...(precondition === undefined
            ? {}
            : {
                precondition(exchange) {
                  const result = precondition.evaluate(exchange.celAttributes);
                  return result.ok && result.value === true;
                },
              }),
        },
      },
    };
  },
});
