/**
 * Finds the override headers that a part of the configuration names, in matches, expressions, or lists of headers. The
 * gateway does not remove these headers.
 */
import { OVERRIDE_HEADERS } from "../../http/header-rules.ts";

const NAMES = [...OVERRIDE_HEADERS]
  .sort((a, b) => b.length - a.length)
  .map((name) => name.replaceAll("-", "[^a-z0-9]"));
const NAMED = new RegExp(`(?<![a-z0-9])(?:${NAMES.join("|")})(?![-_]?[a-z0-9])`, "gi");

/** Returns the names as written, in lowercase. Other spellings of the same header are not in the set. */
export function namedOverrides(parts: readonly unknown[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const part of parts) collect(part, found);
  return found;
}

function collect(value: unknown, found: Set<string>): void {
  if (typeof value === "string") for (const [name] of value.matchAll(NAMED)) found.add(name.toLowerCase());
  if (typeof value !== "object" || value === null) return;
  for (const [key, item] of Object.entries(value)) {
    // A configuration that removes a header does not need it.
    if (key === "remove") continue;
    if (!Array.isArray(value)) collect(key, found);
    collect(item, found);
  }
}
