/**
 * `delay`: waits before the request goes on, to test how clients behave if a backend is slow.
 */
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { bodyFor, definePolicy, sending } from "../../core/policy.ts";
import { duration, durationOrExpression } from "../../core/schema.ts";

const MAX_DELAY_MS = 60_000;

export const delay = definePolicy({
  kind: "delay",
  doc: "Delays requests, to test how clients behave if a backend is slow.",
  scopes: ["route"],
  protection: () => "none",
  schema: z.strictObject({
    duration: durationOrExpression().describe(
      "A duration such as `500ms`, or a CEL expression for the milliseconds or the duration, for example `random() < 0.1 ? 2000 : 0`. At most 1m. If the expression fails, the request is not delayed.",
    ),
  }),

  compile(config, env) {
    const expression = typeof config.duration === "string" ? env.cel(config.duration) : undefined;
    const fixedMs = typeof config.duration === "number" ? config.duration : 0;
    return {
      shape: sending(env, "delay", {
        ...bodyFor([expression]),
        head(exchange) {
          const ms = Math.min(MAX_DELAY_MS, expression === undefined ? fixedMs : evaluatedMs(expression, exchange));
          if (!(ms > 0)) return undefined;
          exchange.trace?.point({ type: "policyEvent", kind: "delay", details: { milliseconds: ms } });
          return new Promise<undefined>((resolve) => {
            env.clock.after(ms, () => resolve(undefined));
          });
        },
      }),
    };
  },
});

/** Returns 0 if the expression fails or its value is neither a number nor a duration. */
function evaluatedMs(expression: Expression, exchange: Exchange): number {
  const result = expression.evaluate(exchange.celAttributes);
  if (!result.ok) return 0;
  const { value } = result;
  if (typeof value === "number") return value;
  const written = duration().safeParse(value);
  return written.success ? written.data : 0;
}
