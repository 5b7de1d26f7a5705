/**
 * Defines the columns of `gateway_usage`, which has the sums of an hour for each combination of dimensions.
 */

/** Absent dimensions are empty strings, because NULL values would not be unique in a key. */
export const DIMENSIONS = ["team", "key", "user_name", "route", "model", "provider", "server", "tool"] as const;

/** These columns of `gateway_usage` are sums over the requests of an hour. */
export const SUMS = [
  "requests",
  "ok",
  "rejected",
  "failed",
  "aborted",
  "input_tokens",
  "output_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "reasoning_tokens",
  "cost_nano",
  "duration_us",
  "response_bytes",
] as const;
