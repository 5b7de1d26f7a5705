/**
 * Tells whether a parsed value has everything that its text has. `JSON.parse` keeps only the last of repeated names and
 * replaces invalid UTF-8, so another parser may read such a text differently.
 */
import { isUtf8 } from "node:buffer";
import type { Steps } from "../base/sliced-work.ts";
import { endOfString, QUOTE } from "./syntax.ts";

const STEP_BYTES = 32 * 1024;

/** `bytes` must be valid JSON, and `value` its parsed value. */
export function* isLossless(bytes: Buffer, value: unknown): Steps<boolean> {
  if (!isUtf8(bytes)) return false;
  // Each repeated name is a string that the value does not have.
  let strings = 0;
  let pausedAt = 0;
  for (let i = 0; i < bytes.length; i++) {
    if (bytes[i] !== QUOTE) continue;
    strings += 1;
    i = endOfString(bytes, i + 1);
    if (i - pausedAt > STEP_BYTES) {
      pausedAt = i;
      yield;
    }
  }
  return strings === stringsIn(value);
}

/** Counts strings and names. */
function stringsIn(value: unknown): number {
  if (typeof value === "string") return 1;
  if (typeof value !== "object" || value === null) return 0;
  let strings = 0;
  if (Array.isArray(value)) for (const item of value) strings += stringsIn(item);
  else for (const name of Object.keys(value)) strings += 1 + stringsIn((value as Record<string, unknown>)[name]);
  return strings;
}
