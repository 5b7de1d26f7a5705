/**
 * Takes the text before a mark (an empty line, a line break) out of bytes that arrive in pieces. What has come of a text
 * that is not whole is held, up to a bound.
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

/** -1 if the byte is none. */
export function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** The mark has not come yet. */
export const NOT_YET = -1;
/** More than the bound came before the mark. */
export const TOO_LONG = -2;

export class TextUntil {
  /** The text that was taken last. */
  text = "";
  /** What has come of a text that is not whole. */
  held: Buffer | undefined = undefined;

  /** Takes the text into `text` and returns where to go on, or NOT_YET, or TOO_LONG. */
  take(chunk: Buffer, at: number, mark: Buffer, maxBytes: number): number {
    const { held } = this;
    const all = held === undefined ? chunk : Buffer.concat([held, chunk.subarray(at)]);
    const start = held === undefined ? at : 0;
    const end = all.indexOf(mark, start);
    // While the mark has not come, all but its own first bytes are known to stand before it.
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
