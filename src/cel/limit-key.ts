/**
 * The value of a limit's or budget's `key` for one request. What is empty, fails, or is no plain value has no key: such requests
 * share one bucket and are not exempt (spec 8). Long values are hashed, so that a client cannot choose how much a
 * bucket costs.
 */
import { createHash } from "node:crypto";
import type { Expression } from "./expression.ts";

/** 65,536 keys of this length stay far below 40 MB, even with two bytes per character. */
export const MAX_KEY_LENGTH = 128;

/** Parts of a request that may hold credentials: a bucket's name must not show them. */
const MAY_BE_SECRET = [
  "request.headers",
  "request.body",
  "request.uri",
  "request.pathAndQuery",
  "request.query",
  "apiKey.key",
  "llm.prompt",
];

/** undefined: the shared bucket. */
export function keyOf(expression: Expression, attributes: object): string | undefined {
  const result = expression.evaluate(attributes);
  if (!result.ok) return undefined;
  const { value } = result;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string" || value === "") return undefined;
  return boundedKey(value);
}

/** The key under which a value is kept. */
export function boundedKey(value: string): string {
  return value.length > MAX_KEY_LENGTH ? `sha256:${createHash("sha256").update(value).digest("base64url")}` : value;
}

/** Whether its values may be credentials. */
export function mayBeSecret(expression: Expression): boolean {
  return MAY_BE_SECRET.some((path) => expression.reads(path));
}

/** How a key is shown in logs, traces and the admin interface. */
export function keyDisplay(expression: Expression): (key: string) => string {
  if (!mayBeSecret(expression)) return (key) => key;
  return (key) => `#${createHash("sha256").update(key).digest("hex").slice(0, 12)}`;
}
