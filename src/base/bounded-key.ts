/**
 * Bounds the keys of limits and budgets.
 */
import { createHash } from "node:crypto";

export const MAX_KEY_LENGTH = 128;

/** Hashes long keys, so that clients cannot inflate memory. */
export function boundedKey(value: string): string {
  return value.length > MAX_KEY_LENGTH ? `sha256:${createHash("sha256").update(value).digest("base64url")}` : value;
}
