/**
 * Where a server-sent event ends: a blank line, whichever of the three line ends the server writes.
 */

const LF = 10;
const CR = 13;

/** The offset behind the blank line that ends the event, or -1. */
export function endOfEvent(bytes: Buffer, from: number): number {
  for (let i = bytes.indexOf(LF, from); i >= 0; i = bytes.indexOf(LF, i + 1)) {
    if (bytes[i + 1] === LF) return i + 2;
    if (bytes[i + 1] === CR && bytes[i + 2] === LF) return i + 3;
  }
  // Nobody is known to write CR alone, but the standard allows it.
  for (let i = bytes.indexOf(CR, from); i >= 0; i = bytes.indexOf(CR, i + 1)) {
    if (bytes[i + 1] === CR) return i + 2;
  }
  return -1;
}
