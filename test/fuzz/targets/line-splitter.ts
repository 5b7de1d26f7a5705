/**
 * Lines of a child process: as a plain split finds them, at every chunking, and what is too long is refused whichever way
 * it comes.
 */

import { LineSplitter, LineTooLong } from "../../../src/base/line-splitter.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { waysToArrive } from "../pieces.ts";
import { defineTarget, expectSame, refusalOf } from "../target.ts";

const MAX_BYTES = 12;
const LINES = peerInput("mcp-server/stdio-lines").upTo(MAX_BYTES);

function read(pieces: readonly Buffer[]): { lines: string[]; isRefused: boolean } {
  const lines: string[] = [];
  const splitter = new LineSplitter(LINES, (line) => void lines.push(line));
  const refusal = refusalOf(() => {
    for (const piece of pieces) splitter.push(piece);
  }, LineTooLong);
  return { lines, isRefused: refusal !== undefined };
}

/** The last line has no end yet: it is only held against the limit. */
function reference(bytes: Buffer): { lines: string[]; isRefused: boolean } {
  const lines: string[] = [];
  const all = bytes.toString("latin1").split("\n");
  for (const [i, line] of all.entries()) {
    const text = line.endsWith("\r") ? line.slice(0, -1) : line;
    if (text.length > MAX_BYTES) return { lines, isRefused: true };
    if (i < all.length - 1 && text !== "") lines.push(Buffer.from(text, "latin1").toString("utf8"));
  }
  return { lines, isRefused: false };
}

export const lineSplitter = defineTarget<Buffer>({
  name: "line-splitter",
  seeds: [Buffer.from('{"a":1}\n{"b":2}\r\n\n'), Buffer.from("123456789012\r\n"), Buffer.from("1234567890123")],
  smokeCases: 3_000,
  generate: (random) => Buffer.from(random.text(["a", "{}", "\n", "\r\n", "\r", "é", "12345", "123456789", "\0"], 12)),
  run(bytes) {
    const whole = read([bytes]);
    expectSame(whole, reference(bytes), "as the reference has it");
    for (const pieces of waysToArrive(bytes)) expectSame(read(pieces), whole, "in pieces");
    return `${whole.lines.length} ${whole.isRefused} ${whole.lines.map((line) => line.length).join()}`;
  },
});
