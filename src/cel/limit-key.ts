/**
 * Evaluates the `key` of a limit or budget for one request. Long values are hashed, so that clients cannot inflate
 * memory.
 */
import { createHash } from "node:crypto";
import { boundedKey } from "../base/bounded-key.ts";
import type { AttributeSource, Expression } from "./expression.ts";

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

export function mayBeSecret(expression: Expression): boolean {
  return MAY_BE_SECRET.some((path) => expression.reads(path));
}

export function keyDisplay(expression: Expression): (key: string) => string {
  if (!mayBeSecret(expression)) return (key) => key;
  return (key) => `#${createHash("sha256").update(key).digest("hex").slice(0, 12)}`;
}
