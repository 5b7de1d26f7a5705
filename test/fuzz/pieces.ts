/**
 * The ways in which bytes may arrive: whole, byte by byte, and cut at places that the bytes themselves choose. Whatever
 * reads a stream must say the same of all of them.
 */
import { Random, seedOf } from "../support/random.ts";

/** A byte at a time costs as much as all else together: always for short inputs, now and then for longer ones. */
const MAX_ALWAYS_DRIPPED_BYTES = 48;
const MAX_DRIPPED_BYTES = 512;
const DRIPPED_ONE_IN = 8;
const RANDOM_WAYS = 2;
/** Now and then all ways to cut a short input in two. */
const EVERY_CUT_ONE_IN = 96;
const MAX_EVERY_CUT_BYTES = 160;

export function* waysToArrive(bytes: Buffer): Iterable<Buffer[]> {
  const random = new Random(seedOf(bytes));
  const isDripped = bytes.length <= MAX_ALWAYS_DRIPPED_BYTES || random.oneIn(DRIPPED_ONE_IN);
  if (isDripped && bytes.length <= MAX_DRIPPED_BYTES) yield cut(bytes, 1);
  for (let way = 0; way < RANDOM_WAYS; way++) {
    const pieces: Buffer[] = [];
    const most = 1 + random.int(way === 0 ? Math.max(12, bytes.length >> 3) : Math.max(2, bytes.length));
    for (let at = 0; at < bytes.length; ) {
      const size = 1 + random.int(most);
      pieces.push(Buffer.from(bytes.subarray(at, at + size)));
      at += size;
    }
    yield pieces;
  }
  if (bytes.length > MAX_EVERY_CUT_BYTES || !random.oneIn(EVERY_CUT_ONE_IN)) return;
  for (let at = 1; at < bytes.length; at++) yield [bytes.subarray(0, at), bytes.subarray(at)];
}

function cut(bytes: Buffer, size: number): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(Buffer.from(bytes.subarray(at, at + size)));
  return pieces;
}
