/**
 * Decompression: the output is what the platform decompresses without limits, or nothing beyond a limit, in one piece
 * and on the thread pool.
 */
import {
  brotliCompressSync,
  brotliDecompressSync,
  constants,
  deflateRawSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  inflateRawSync,
  inflateSync,
} from "node:zlib";
import { decompress, decompressLater, maxOutput } from "../../../src/base/decompress.ts";
import { peerInput } from "../../../src/base/peer-inputs.ts";
import type { Random } from "../../support/random.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const INPUT = peerInput("llm-provider/compressed-response");

const SYNC = { finishFlush: constants.Z_SYNC_FLUSH };
const CODINGS: Readonly<Record<string, { pack(bytes: Buffer): Buffer; unpack(bytes: Buffer): Buffer }>> = {
  gzip: { pack: (bytes) => gzipSync(bytes, { level: 1 }), unpack: (bytes) => gunzipSync(bytes, SYNC) },
  deflate: { pack: (bytes) => deflateSync(bytes, { level: 1 }), unpack: (bytes) => inflateSync(bytes, SYNC) },
  "deflate-raw": {
    pack: (bytes) => deflateRawSync(bytes, { level: 1 }),
    unpack: (bytes) => inflateRawSync(bytes, SYNC),
  },
  br: {
    pack: (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
    unpack: (bytes) => brotliDecompressSync(bytes, { finishFlush: constants.BROTLI_OPERATION_FLUSH }),
  },
};
const NAMES = Object.keys(CODINGS);
const PIECES = ['{"usage":', "data: ", "\n\n", "aaaaaaaa", "\0\0\0\0", "é", "0.12345,"];

type CompressedCase = { readonly coding: string; readonly bytes: Buffer; readonly limit: number };

export const compressed = defineTarget<CompressedCase>({
  name: "compressed",
  seeds: NAMES.map((coding) => ({
    coding,
    bytes: CODINGS[coding]?.pack(Buffer.from("text")) ?? Buffer.alloc(0),
    limit: 100,
  })),
  smokeCases: 1_000,
  generate(random: Random) {
    const coding = random.pick(NAMES);
    const text = Buffer.from(random.text(PIECES, 40).repeat(random.pick([1, 1, 20])));
    const packed = CODINGS[coding]?.pack(text) ?? text;
    const bytes = random.oneIn(3) ? packed.subarray(0, random.int(packed.length + 1)) : Buffer.from(packed);
    if (random.oneIn(3) && bytes.length > 0) bytes[random.int(bytes.length)] = random.int(256);
    return { coding, bytes, limit: random.pick([1, 100, 1_000, 100_000]) };
  },
  run({ coding, bytes, limit }) {
    const unpack = CODINGS[coding]?.unpack;
    if (unpack === undefined || !(limit > 0) || limit > INPUT.maxBytes) return "no case";
    const input = INPUT.upTo(Math.ceil(limit));
    const found = decompress(input, bytes, coding);
    let wanted: Buffer | undefined;
    try {
      wanted = unpack(bytes);
    } catch {
      // Corrupt data has no output.
    }
    const most = maxOutput(input, bytes.length);
    expectSame(
      found?.toString("hex"),
      wanted && wanted.length <= most ? wanted.toString("hex") : undefined,
      "the output",
    );
    let isCalled = false;
    decompressLater(input, bytes, coding, (later) => {
      isCalled = true;
      expectSame(later?.toString("hex"), found?.toString("hex"), "the output of the thread pool");
    });
    expect(isCalled, "a small output is not passed on at once");
    return `${coding} ${wanted === undefined ? "corrupt" : found === undefined ? "too large" : "whole"}`;
  },
});
