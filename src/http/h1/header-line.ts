/**
 * The grammar of a header line that both heads share (RFC 9110 section 5.5): what stands around a value and in it.
 */

const TAB = 9;
const SPACE = 32;

/** Without the spaces and tabs around it; no other character counts as space: to `trim()` the byte 0xA0 is one as well. */
export function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}
