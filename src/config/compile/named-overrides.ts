/**
 * Finds the override headers that a part of the configuration names, in matches, expressions, or lists of headers. The
 * gateway does not remove these headers.
 */
import { OVERRIDE_HEADERS } from "../../http/header-rules.ts";

/** A longer name comes before its own start. */
const NAMES = [...OVERRIDE_HEADERS].sort((a, b) => b.length - a.length);
const NAME_CHARACTER = /[a-z0-9]/i;
/** An expression may have other characters in place of hyphens, for example `request.headers.x_original_url`. */
const SEPARATORS = /[^a-z0-9]/gi;

/** Returns the names as written, in lowercase. Other spellings of the same header are not in the set. */
export function namedOverrides(parts: readonly unknown[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const part of parts) collect(part, found);
  return found;
}

function collect(value: unknown, found: Set<string>): void {
  if (typeof value === "string") collectFromText(value, found);
  if (typeof value !== "object" || value === null) return;
  for (const [key, item] of Object.entries(value)) {
    // A configuration that removes a header does not need it.
    if (key === "remove") continue;
    if (!Array.isArray(value)) collect(key, found);
    collect(item, found);
  }
}

function collectFromText(text: string, found: Set<string>): void {
  const hyphenated = text.replace(SEPARATORS, "-").toLowerCase();
  const starts = new Set<number>();
  for (const name of NAMES)
    for (let at = hyphenated.indexOf(name); at >= 0; at = hyphenated.indexOf(name, at + 1)) {
      const end = at + name.length;
      if (starts.has(at) || isNameCharacter(text, at - 1) || continuesName(text, end)) continue;
      starts.add(at);
      found.add(text.slice(at, end).toLowerCase());
    }
}

function continuesName(text: string, at: number): boolean {
  return isNameCharacter(text, text[at] === "-" || text[at] === "_" ? at + 1 : at);
}

function isNameCharacter(text: string, at: number): boolean {
  return NAME_CHARACTER.test(text.charAt(at));
}
