/**
 * An object's text with members replaced, added or taken out; what is not named stays as its sender wrote it, big
 * numbers and unknown members included.
 */
import { members, type Span } from "./json-text.ts";

/** A value's text; undefined takes the member out. */
export type MemberChanges = ReadonlyMap<string, string | undefined>;

/** The text of the object at `span`, changed. Anything but an object counts as an empty one. */
export function withMembers(text: string, span: Span | undefined, changes: MemberChanges): string {
  const parts: string[] = [];
  const left = new Map(changes);
  for (const one of span ? members(text, span.start) : []) {
    const key = text.slice(one.keyStart, one.start);
    if (!left.has(one.key)) parts.push(key + text.slice(one.start, one.end));
    else {
      const value = left.get(one.key);
      if (value !== undefined) parts.push(key + value);
    }
    left.delete(one.key);
  }
  for (const [key, value] of left) if (value !== undefined) parts.push(`${JSON.stringify(key)}:${value}`);
  return `{${parts.join(",")}}`;
}
