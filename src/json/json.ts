/**
 * Parsed JSON as what it is: unknown members. Never spread into objects that decide something: a `__proto__`
 * member would come along.
 */

const SPACE = 32;
const OPEN_BRACE = 123;

export type Members = Readonly<Record<string, unknown>>;

export function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The members of a JSON object, or undefined if the text is anything else. */
export function parseMembers(text: string): Members | undefined {
  // Other texts, such as the `[DONE]` of a stream, are told apart without an exception.
  if (!beginsObject(text)) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return isMembers(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function beginsObject(text: string): boolean {
  let at = 0;
  while (text.charCodeAt(at) <= SPACE) at += 1;
  return text.charCodeAt(at) === OPEN_BRACE;
}

/** Any JSON value; undefined if the bytes are absent or no JSON. */
export function parseValue(bytes: Buffer | undefined): unknown {
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}
