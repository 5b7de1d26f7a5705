/**
 * The value of a hex digit in a chunk's size, byte by byte.
 */

/** -1 if the byte is none. */
export function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}
