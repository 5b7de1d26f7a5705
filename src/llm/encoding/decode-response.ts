/**
 * Decompresses responses that the gateway inspects. The output size is limited, because a few kilobytes can expand to
 * gigabytes.
 */
import { brotliDecompressSync, constants, gunzipSync, inflateSync } from "node:zlib";

const MAX_DECODED_BYTES = 16 * 1024 * 1024;

export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding !== "" && contentEncoding.toLowerCase() !== "identity";
}

/**
 * Accepts a truncated response. Returns undefined if the encoding is not supported, the data is corrupt, or the output
 * exceeds `maxBytes`.
 */
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
