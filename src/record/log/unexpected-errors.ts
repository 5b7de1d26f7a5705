/**
 * Counts unexpected exceptions and logs them with their stack, up to a limit. Text in quotes is removed from messages,
 * because it may be input.
 */
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "./logger.ts";
import type { Metrics } from "./metrics.ts";

export type UnexpectedSource = "request" | "connection" | "process";

export interface UnexpectedErrors {
  report(source: UnexpectedSource, error: unknown, fields?: Readonly<Record<string, string | undefined>>): void;
}

const MAX_LINES = 20;
const LINES_WINDOW_MS = 10_000;
const MAX_MESSAGE_CHARS = 300;
const MAX_STACK_LINES = 20;

export function createUnexpectedErrors(env: {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
}): UnexpectedErrors {
  const { clock, logger, metrics } = env;
  const family = metrics.counter(
    "gateway_unexpected_errors_total",
    "Unexpected exceptions, by the place that caught them. Each is a bug: alert on any increase.",
    ["source"],
  );
  // The counters are exported as 0 from the start, because an alert on an increase needs a previous value.
  const counters = {
    request: family.labels("request"),
    connection: family.labels("connection"),
    process: family.labels("process"),
  };
  let windowEndsMs = Number.NEGATIVE_INFINITY;
  let lines = 0;
  return {
    report(source, error, fields = {}) {
      counters[source].add();
      const nowMs = clock.monotonicMs();
      if (nowMs >= windowEndsMs) {
        if (lines > MAX_LINES) logger.error("more unexpected errors were not logged", { count: lines - MAX_LINES });
        windowEndsMs = nowMs + LINES_WINDOW_MS;
        lines = 0;
      }
      lines += 1;
      if (lines <= MAX_LINES) logger.error("unexpected error", { source, ...fields, error: describeDefect(error) });
    },
  };
}

export function describeDefect(error: unknown): string {
  if (!(error instanceof Error)) return `thrown value of type ${typeof error}`;
  const message = error.message.replace(/(["'`])[\s\S]*\1/g, "$1…$1").slice(0, MAX_MESSAGE_CHARS);
  const places = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return [`${error.name}: ${message}`, ...places.slice(0, MAX_STACK_LINES)].join("\n");
}
