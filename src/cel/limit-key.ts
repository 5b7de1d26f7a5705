/**
 * Evaluates the `key` of a limit or budget for one request. Long values are hashed, so that clients cannot inflate
 * memory.
 */
import { createHash } from "node:crypto";
import type { AttributeSource, Expression } from "./expression.ts";

export const MAX_KEY_LENGTH = 128;

/** These attributes may contain credentials. */
const MAY_BE_SECRET = [
  "request.headers",
  "request.body",
  "request.uri",
  "request.pathAndQuery",
  "request.query",
  "apiKey.key",
  "llm.prompt",
];

/** Returns undefined if the key fails, is empty, or is not a scalar. */
export function keyOf(expression: Expression, attributes: AttributeSource): string | undefined {
  const result = expression.evaluate(attributes);
  if (!result.ok) return undefined;
  const { value } = result;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string" || value === "") return undefined;
  return boundedKey(value);
}

export function boundedKey(value: string): string {
  return value.length > MAX_KEY_LENGTH ? `sha256:${createHash("sha256").update(value).digest("base64url")}` : value;
}

export function mayBeSecret(expression: Expression): boolean {
  return MAY_BE_SECRET.some((path) => expression.reads(path));
}

export function keyDisplay(expression: Expression): (key: string) => string {
  if (!mayBeSecret(expression)) return (key) => key;
  return (key) => `#${createHash("sha256").update(key).digest("hex").slice(0, 12)}`;
}
