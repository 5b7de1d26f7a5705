/**
 * Extracts the text before a mark (an empty line, a line break) from bytes that arrive in chunks. An incomplete text is
 * held up to a limit.
 */

const TAB = 9;
const SPACE = 32;

/** Trims spaces and tabs only. `trim()` would also remove the byte 0xA0. */
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

/** Returns -1 if the byte is not a hex digit. */
export function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** The mark has not arrived yet. */
export const NOT_YET = -1;
/** The text before the mark exceeds the limit. */
export const TOO_LONG = -2;

export class TextUntil {
  /** The text that was extracted last. */
  text = "";
  /** The received part of an incomplete text. */
  held: Buffer | undefined = undefined;

  /** Sets `text` and returns the offset to continue at, or returns NOT_YET or TOO_LONG. */
  take(chunk: Buffer, at: number, mark: Buffer, maxBytes: number): number {
    const { held } = this;
    const all = held === undefined ? chunk : Buffer.concat([held, chunk.subarray(at)]);
    const start = held === undefined ? at : 0;
    const end = all.indexOf(mark, start);
    // Until the mark arrives, all bytes except a possible beginning of the mark precede it.
    const before = (end < 0 ? all.length - mark.length + 1 : end) - start;
    if (before > maxBytes) return TOO_LONG;
    if (end < 0) {
      this.held = all.subarray(start);
      return NOT_YET;
    }
    this.held = undefined;
    this.text = all.toString("latin1", start, end);
    const consumed = end + mark.length - start;
    return held === undefined ? at + consumed : at + consumed - held.length;
  }
}
