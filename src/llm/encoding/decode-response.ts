/**
 * Decompresses a response for reading, never for forwarding. The output is bounded, because a few kilobytes can expand
 * into gigabytes; larger responses are not read.
 */
import { brotliDecompressSync, constants, gunzipSync, inflateSync } from "node:zlib";

/** Decoding this much takes 40 ms. */
const MAX_DECODED_BYTES = 16 * 1024 * 1024;

export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding !== "" && contentEncoding.toLowerCase() !== "identity";
}

/** Accepts a truncated response. Undefined if it cannot be decoded. */
export function decodeResponse(
  bytes: Buffer,
  contentEncoding: string | undefined,
  maxBytes = MAX_DECODED_BYTES,
): Buffer | undefined {
  const zlib = { maxOutputLength: maxBytes, finishFlush: constants.Z_SYNC_FLUSH };
  try {
    switch (contentEncoding?.toLowerCase()) {
      case "gzip":
      case "x-gzip":
        return gunzipSync(bytes, zlib);
      case "deflate":
        return inflateSync(bytes, zlib);
      case "br":
        return brotliDecompressSync(bytes, {
          maxOutputLength: maxBytes,
          finishFlush: constants.BROTLI_OPERATION_FLUSH,
        });
      default:
        return undefined;
    }
  } catch {
    return undefined;
  }
}
