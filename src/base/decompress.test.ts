import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { Random } from "../../test/support/random.ts";
import { decompress, decompressAsync, decompressLater, maxOutput, PIECE_BYTES } from "./decompress.ts";
import { PEER_INPUTS, type PeerInput, peerInput } from "./peer-inputs.ts";

function packBrotli(bytes: Uint8Array): Buffer {
  return brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 2 } });
}

const INPUT = peerInput("llm-provider/compressed-response");
const PACK = {
  gzip: gzipSync,
  "x-gzip": gzipSync,
  deflate: deflateSync,
  "deflate-raw": deflateRawSync,
  br: packBrotli,
};
const ENTRIES = PEER_INPUTS.filter((input): input is PeerInput<"compressed"> => input.reader === "compressed");

for (const [coding, pack] of Object.entries(PACK)) {
  test(`${coding} is decompressed, in one piece or on the thread pool, whole or truncated`, async () => {
    for (const size of [0, 1, 1000, PIECE_BYTES, PIECE_BYTES + 1]) {
      const text = Buffer.from(mixedText(size));
      const packed = pack(text);
      assert.ok(decompress(INPUT, packed, coding)?.equals(text), String(size));
      assert.ok((await decompressAsync(INPUT, packed, coding.toUpperCase())).equals(text), String(size));
      if (size < 1000) continue;
      const part = decompress(INPUT, packed.subarray(0, packed.length - 20), coding);
      assert.ok(part !== undefined && part.length > size / 2 && text.subarray(0, part.length).equals(part));
    }
  });
}

test("an output of one piece is passed on before the function returns, and a larger one later", async () => {
  let isDone = false;
  decompressLater(INPUT, gzipSync(mixedText(PIECE_BYTES)), "gzip", () => {
    isDone = true;
  });
  assert.equal(isDone, true);
  const later = await new Promise((resolve) => {
    let hasReturned = false;
    decompressLater(INPUT, gzipSync(mixedText(PIECE_BYTES + 1)), "gzip", () => resolve(hasReturned));
    hasReturned = true;
  });
  assert.equal(later, true);
});

test("100 corrupt inputs have the same output on both ways, or none", async () => {
  const packed = gzipSync(mixedText(100_000));
  for (let seed = 0; seed < 100; seed++) {
    const random = new Random(seed);
    const corrupt = Buffer.from(packed.subarray(0, random.int(packed.length)));
    for (let i = 0; i < 5 && corrupt.length > 0; i++) corrupt[random.int(corrupt.length)] = random.int(256);
    const later = await decompressAsync(INPUT, corrupt, "gzip").catch(() => undefined);
    assert.deepEqual(decompress(INPUT, corrupt, "gzip"), later, `seed ${seed}`);
  }
});

test("corrupt data and other encodings have no output", async () => {
  for (const coding of ["gzip", "deflate", "br"]) assert.equal(decompress(INPUT, Buffer.from("{}"), coding), undefined);
  for (const coding of [undefined, "", "zstd", "identity", "constructor", "__proto__"])
    assert.equal(decompress(INPUT, gzipSync("{}"), coding), undefined);
  await assert.rejects(decompressAsync(INPUT, Buffer.from("{}"), "gzip"), /cannot be decompressed/);
});

for (const input of ENTRIES) {
  test(`${input.id} limits the output in bytes and by its ratio, in every encoding`, async () => {
    for (const [coding, pack] of Object.entries(PACK)) {
      const size = Math.min(input.maxBytes, 8 * PIECE_BYTES) + 1;
      const bomb = pack(Buffer.alloc(size));
      const limit = maxOutput(input, bomb.length);
      const allowed = size <= limit ? size : undefined;
      assert.equal(decompress(input, bomb, coding)?.length, allowed, coding);
      const later = await decompressAsync(input, bomb, coding).catch(() => undefined);
      assert.equal(later?.length, allowed, coding);
      assert.ok(limit <= 256 * 1024 + bomb.length * input.maxRatio && limit <= input.maxBytes);
    }
    // Brotli packs 8 MiB of zeros into a few bytes.
    if (input.maxBytes > PIECE_BYTES) assert.ok(maxOutput(input, 20) < 8 * PIECE_BYTES);
  });
}

function mixedText(size: number): string {
  let text = "";
  for (let i = 0; text.length < size; i++) text += `${(i * 2_654_435_761) % 4_294_967_296} `;
  return text.slice(0, size);
}
