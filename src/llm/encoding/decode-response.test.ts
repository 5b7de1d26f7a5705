import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliCompressSync, constants, deflateSync, gzipSync } from "node:zlib";
import { Random } from "../../../test/support/random.ts";
import { decodeResponse, decodeResponseLater } from "./decode-response.ts";

const MIB = 1024 * 1024;
const ENCODINGS = [
  ["gzip", gzipSync],
  ["X-Gzip", gzipSync],
  ["deflate", deflateSync],
  ["br", (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 3 } })],
] as const satisfies readonly (readonly [string, (bytes: Buffer) => Buffer])[];

/** Text that is compressed to about a tenth of its size. */
function text(bytes: number): Buffer {
  const random = new Random(bytes);
  const words = Array.from({ length: 5_000 }, () => random.next().toString(36));
  let all = "";
  while (all.length < bytes) all += `${words[random.int(words.length)]} ${" ".repeat(random.int(200))}`;
  return Buffer.from(all.slice(0, bytes));
}

for (const [encoding, compress] of ENCODINGS) {
  test(`${encoding}: outputs up to the limits are decoded, at once or by another thread`, async () => {
    for (const bytes of [1, 1_000, 100_000, 3 * MIB]) {
      const original = text(bytes);
      const compressed = compress(original);
      assert.ok(decodeResponse(compressed, encoding)?.equals(original), `${bytes} bytes`);
      assert.ok((await decodeResponseLater(compressed, encoding))?.equals(original), `${bytes} bytes`);
    }
    const large = text(5 * MIB);
    assert.equal(decodeResponse(compress(large), encoding), undefined);
    assert.equal(decodeResponse(compress(large.subarray(0, 1_001)), encoding, 1_000), undefined);
    assert.ok((await decodeResponseLater(compress(large), encoding))?.equals(large));
    assert.equal(await decodeResponseLater(compress(text(17 * MIB)), encoding), undefined);
  });

  test(`${encoding}: an output that is much larger than its input is not decoded`, async () => {
    for (const bytes of [64 * 1024, 256 * 1024, 400 * 1024, MIB, 3 * MIB]) {
      const compressed = compress(Buffer.alloc(bytes, "\n"));
      const isFine = bytes <= 256 * 1024 + 100 * compressed.length;
      assert.equal(decodeResponse(compressed, encoding)?.length, isFine ? bytes : undefined);
      assert.equal((await decodeResponseLater(compressed, encoding))?.length, isFine ? bytes : undefined);
    }
    assert.equal(decodeResponse(compress(Buffer.alloc(3 * MIB)), encoding), undefined);
  });

  test(`${encoding}: truncated data is decoded as far as it goes, and 100 corrupt inputs without an error`, async () => {
    const original = text(100_000);
    const compressed = compress(original);
    const part = decodeResponse(compressed.subarray(0, compressed.length - 20), encoding);
    assert.ok(part !== undefined && original.subarray(0, part.length).equals(part));
    for (let seed = 0; seed < 100; seed++) {
      const random = new Random(seed);
      const corrupt = Buffer.from(compressed.subarray(0, random.int(compressed.length)));
      for (let i = 0; i < 5 && corrupt.length > 0; i++) corrupt[random.int(corrupt.length)] = random.int(256);
      const now = decodeResponse(corrupt, encoding);
      const later = await decodeResponseLater(corrupt, encoding);
      assert.equal(now === undefined, later === undefined, `seed ${seed}`);
      assert.ok(now === undefined || now.equals(later as Buffer), `seed ${seed}`);
    }
  });
}

test("other encodings are not decoded", async () => {
  for (const encoding of [undefined, "", "identity", "zstd", "gzip, br", "constructor", "__proto__"]) {
    assert.equal(decodeResponse(gzipSync("a"), encoding), undefined);
    assert.equal(await decodeResponseLater(gzipSync("a"), encoding), undefined);
  }
});
