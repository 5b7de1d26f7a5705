/**
 * `canary` of a backend: which requests of the route get the new version, and when it is withdrawn by itself.
 */
import { z } from "zod";
import { celSource, duration, exactlyOneOf } from "../../core/schema.ts";

const MAX_CANARY_WINDOW_MS = 3_600_000;

export const canarySchema = exactlyOneOf(
  z.strictObject({
    share: z
      .number()
      .gt(0)
      .max(100)
      .optional()
      .describe("Percent of the route's requests, for example 5. Exactly one of `share` and `when`."),
    when: celSource()
      .optional()
      .describe('CEL: the requests for which it is true, for example `request.headers["x-canary"] == "1"`.'),
    maxErrors: z
      .number()
      .min(0)
      .max(100)
      .default(5)
      .describe("Withdrawn if more than this percent of its requests in the window fail (5xx, no answer). Default: 5."),
    maxLatency: duration()
      .optional()
      .describe("Withdrawn if more than 5 percent of its requests in the window take longer to a response head."),
    minRequests: z
      .int()
      .min(1)
      .max(100_000)
      .default(20)
      .describe("Nothing is decided before so many requests in the window. Default: 20."),
    window: duration()
      .refine((ms) => ms >= 1000 && ms <= MAX_CANARY_WINDOW_MS, "from 1s to 1h")
      .default(60_000)
      .describe("The time over which failures are counted. Default: 1m."),
  }),
  ["share", "when"],
);

export type CanaryConfig = z.output<typeof canarySchema>;

type Check<Value> = [check: (value: Value) => boolean, problem: { message: string; path?: string[] }];

/** Sessions and failover of the others would not go with it. */
export const onlyHttpCanaries: Check<object> = [
  (value) => !("canary" in value) || value.canary === undefined || "host" in value || "service" in value,
  { message: "only `host` and `service` backends can be a canary", path: ["canary"] },
];

export const hasOther: Check<readonly object[]> = [
  (list) => list.length === 0 || list.some((one) => !("canary" in one) || one.canary === undefined),
  { message: "a canary needs a backend beside it, which serves the other requests" },
];
