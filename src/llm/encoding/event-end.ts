/**
 * Where a server-sent event ends: a blank line, whichever of the three line ends the server writes.
 */

const LF = 10;
const CR = 13;

/** The offset behind the first blank line, which ends the event, or -1. */
export function endOfEvent(bytes: Buffer, from: number): number {
  const lf = endByLineFeeds(bytes, from);
  const cr = endByReturns(bytes, from, lf < 0 ? bytes.length : lf);
  return cr < 0 ? lf : cr;
}

function endByLineFeeds(bytes: Buffer, from: number): number {
  for (let i = bytes.indexOf(LF, from); i >= 0; i = bytes.indexOf(LF, i + 1)) {
    if (bytes[i + 1] === LF) return i + 2;
    if (bytes[i + 1] !== CR) continue;
    if (bytes[i + 2] === LF) return i + 3;
    // A lone CR is a blank line too; at the end of the bytes its LF may still come.
    if (i + 2 < bytes.length) return i + 2;
  }
  return -1;
}

/** Nobody is known to write CR alone, but the standard allows it; only what ends before `stop` counts. */
function endByReturns(bytes: Buffer, from: number, stop: number): number {
  for (let i = bytes.indexOf(CR, from); i >= 0 && i + 2 <= stop; i = bytes.indexOf(CR, i + 1)) {
    if (bytes[i + 1] === CR) return i + 2;
  }
  return -1;
}
