import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LineSplitter, LineTooLong } from "./line-splitter.ts";
import { peerInput } from "./peer-inputs.ts";

const LINES = peerInput("mcp-server/stdio-lines");

function split(chunks: readonly Buffer[], maxBytes = 1000): string[] {
  const lines: string[] = [];
  // In one buffer, as they are read: what is kept of a chunk must not be the chunk.
  const buffer = Buffer.alloc(Math.max(...chunks.map(({ length }) => length)));
  const splitter = new LineSplitter(LINES.upTo(maxBytes), (line) => {
    lines.push(line);
    // Whoever takes a line may let another socket read.
    buffer.fill(0);
  });
  for (const chunk of chunks) {
    chunk.copy(buffer);
    splitter.push(buffer.subarray(0, chunk.length));
  }
  return lines;
}

test("lines end with LF or CRLF, and empty ones are left out", () => {
  assert.deepEqual(split([Buffer.from("a\r\n\n\r\nb\nc")]), ["a", "b"]);
});

test("however the bytes are cut, the lines are the same", () => {
  const text = '{"a":"é漢字🙂"}\n{"b":1}\r\nlast\n';
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1 }), (sizes) => {
      const bytes = Buffer.from(text);
      const chunks: Buffer[] = [];
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = sizes[i % sizes.length] as number;
        chunks.push(bytes.subarray(at, at + size));
        at += size;
      }
      assert.deepEqual(split(chunks), ['{"a":"é漢字🙂"}', '{"b":1}', "last"]);
    }),
  );
});

test("a line over the limit is rejected as soon as it is too long", () => {
  assert.throws(() => split([Buffer.alloc(600, 97), Buffer.alloc(600, 97)]), LineTooLong);
  assert.throws(() => split([Buffer.from(`${"a".repeat(1001)}\n`)]), LineTooLong);
  assert.deepEqual(split([Buffer.from(`${"a".repeat(1000)}\n`)]), ["a".repeat(1000)]);
});
