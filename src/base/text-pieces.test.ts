import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { TextPieces } from "./text-pieces.ts";

function inPieces(bytes: Buffer, sizes: readonly number[]): string {
  const pieces = new TextPieces();
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] as number;
    pieces.add(bytes.subarray(at, at + size));
    at += size;
  }
  assert.equal(pieces.bytes, bytes.length);
  return pieces.end();
}

test("however the bytes are split, the string equals that of decoding them at once", () => {
  const sequences = ["a", "é", "漢", "🙂", "\ufeff"].map((text) => [...Buffer.from(text)]);
  const broken = [[0xff], [0xc3], [0xe6, 0xbc], [0xf0, 0x9f, 0x99], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80]];
  const part = fc.constantFrom(...sequences, ...broken);
  fc.assert(
    fc.property(
      fc.array(part, { minLength: 1, maxLength: 40 }),
      fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 5 }),
      fc.boolean(),
      (parts, sizes, isLong) => {
        const some = Buffer.from(parts.flat());
        const bytes = isLong ? Buffer.concat(Array<Buffer>(Math.ceil(70_000 / some.length)).fill(some)) : some;
        const stretched = isLong ? sizes.map((size) => size * 1_009) : sizes;
        assert.equal(inPieces(bytes, stretched), bytes.toString("utf8"));
      },
    ),
  );
});
