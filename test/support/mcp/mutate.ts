/**
 * Functions that corrupt a valid message byte by byte.
 */
import { randomFrom } from "../random.ts";

export function pick<T>(random: () => number, from: readonly T[]): T {
  return from[Math.floor(random() * from.length)] as T;
}

/** Words that mean something to a reader of JSON, of lines, of events or of HTTP. */
const WORDS = [
  ...['"', "\\", "{", "}", "[", "]", ",", ":", "null", "true", "-", "1e999", "\\ud800", "\u0000", "\u2028", "\ufeff"],
  ...["\n", "\r\n", "\n\n", "data: ", "event: endpoint\n", "id: \u010a\n", "retry: 0\n", '"id":1,', '"result":{},'],
  ...['"error":null,', '"method":"ping",', '"nextCursor":"x",', '"name":["echo"],', '"_meta":5,', "[".repeat(300)],
];

/** The text with a few random changes. */
export function mutated(text: string, seed: number): Buffer {
  const random = randomFrom(seed);
  let bytes = Buffer.from(text);
  const changes = 1 + Math.floor(random() * 3);
  for (let i = 0; i < changes; i++) {
    const at = Math.floor(random() * (bytes.length + 1));
    const to = Math.min(bytes.length, at + Math.floor(random() * 20));
    const [before, part, after] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)];
    switch (Math.floor(random() * 7)) {
      case 0: // cut off
        bytes = before;
        break;
      case 1: // a part taken out
        bytes = Buffer.concat([before, after]);
        break;
      case 2: // a part twice
        bytes = Buffer.concat([before, part, part, after]);
        break;
      case 3: // bytes that are no text
        bytes = Buffer.concat([before, Buffer.from([random() * 256, random() * 256, random() * 256]), after]);
        break;
      case 4: // a value replaced
        bytes = Buffer.from(bytes.toString("latin1").replace(/"[a-z]+"|\d+|[{}[\]]/i, pick(random, WORDS)), "latin1");
        break;
      default:
        bytes = Buffer.concat([before, Buffer.from(pick(random, WORDS)), after]);
    }
  }
  return bytes;
}
