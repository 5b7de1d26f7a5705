/**
 * Decodes an encoded answer for reading, never for sending on. Bounded: a few kilobytes of zeros can unfold into
 * gigabytes, and what is larger than the limit is simply not read.
 */
import { brotliDecompressSync, constants, gunzipSync, inflateSync } from "node:zlib";

/** Decoding that much takes 40 ms. */
const MAX_DECODED_BYTES = 16 * 1024 * 1024;

export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding !== "" && contentEncoding.toLowerCase() !== "identity";
}

/** Also of an answer that broke off: what was delivered so far. Undefined if it cannot be read. */
export function decodeAnswer(
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
