/**
 * Decompresses what peers send. The input's entry limits the output in bytes and in relation to the compressed size,
 * because a few kilobytes can expand to gigabytes. Large outputs are decompressed on the thread pool of the platform.
 */
import {
  brotliDecompress,
  brotliDecompressSync,
  constants,
  gunzip,
  gunzipSync,
  inflate,
  inflateRaw,
  inflateRawSync,
  inflateSync,
  type ZlibOptions,
} from "node:zlib";
import type { PeerInput } from "./peer-inputs.ts";

/** Limits the output that is decompressed in one piece on the calling thread. It takes about 10 ms. */
export const PIECE_BYTES = 1024 * 1024;
/** The ratio does not limit smaller outputs, because short repetitive texts compress very well. */
const FREE_BYTES = 256 * 1024;
const CHUNK_BYTES = 64 * 1024;

/** The names are those of `Content-Encoding`, in any case. `deflate-raw` has no header and no checksum. */
const CODINGS: Readonly<Record<string, Coding>> = {
  gzip: { sync: gunzipSync, later: gunzip, flush: constants.Z_SYNC_FLUSH },
  "x-gzip": { sync: gunzipSync, later: gunzip, flush: constants.Z_SYNC_FLUSH },
  deflate: { sync: inflateSync, later: inflate, flush: constants.Z_SYNC_FLUSH },
  "deflate-raw": { sync: inflateRawSync, later: inflateRaw, flush: constants.Z_SYNC_FLUSH },
  br: { sync: brotliDecompressSync, later: brotliDecompress, flush: constants.BROTLI_OPERATION_FLUSH },
};

export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding !== "" && contentEncoding.toLowerCase() !== "identity";
}

/** Returns the largest output of `size` compressed bytes. */
export function maxOutput(input: PeerInput<"compressed">, size: number): number {
  return Math.min(input.maxBytes, FREE_BYTES + size * input.maxRatio);
}

/**
 * Accepts a truncated input. Returns undefined if the encoding is not supported, the data is corrupt, or the output
 * exceeds a limit. The calling thread is blocked, so a larger output than `PIECE_BYTES` belongs in
 * `decompressLater`.
 */
export function decompress(
  input: PeerInput<"compressed">,
  bytes: Uint8Array,
  contentEncoding: string | undefined,
): Buffer | undefined {
  const coding = codingOf(contentEncoding);
  return coding && decompressNow(coding, bytes, maxOutput(input, bytes.length));
}

/**
 * Works like `decompress`. An output of more than `PIECE_BYTES` is decompressed on the thread pool, and `done` is
 * called later. Otherwise, it is called before this function returns.
 */
export function decompressLater(
  input: PeerInput<"compressed">,
  bytes: Uint8Array,
  contentEncoding: string | undefined,
  done: (output: Buffer | undefined) => void,
): void {
  const coding = codingOf(contentEncoding);
  const most = maxOutput(input, bytes.length);
  const output = coding && decompressNow(coding, bytes, Math.min(PIECE_BYTES, most));
  if (coding === undefined || output !== undefined || most <= PIECE_BYTES) done(output);
  else
    coding.later(bytes, { maxOutputLength: most, finishFlush: coding.flush, chunkSize: CHUNK_BYTES }, (error, whole) =>
      done(error === null ? whole : undefined),
    );
}

/** Rejects if `decompressLater` returns no output. */
export function decompressAsync(
  input: PeerInput<"compressed">,
  bytes: Uint8Array,
  contentEncoding: string,
): Promise<Buffer> {
  return new Promise((resolve, reject) =>
    decompressLater(input, bytes, contentEncoding, (output) =>
      output === undefined ? reject(new Error(`${input.id} cannot be decompressed`)) : resolve(output),
    ),
  );
}

interface Coding {
  readonly flush: number;
  sync(bytes: Uint8Array, options: ZlibOptions): Buffer;
  later(bytes: Uint8Array, options: ZlibOptions, done: (error: Error | null, output: Buffer) => void): void;
}

function codingOf(contentEncoding = ""): Coding | undefined {
  const name = contentEncoding.toLowerCase();
  return Object.hasOwn(CODINGS, name) ? CODINGS[name] : undefined;
}

function decompressNow(coding: Coding, bytes: Uint8Array, maxOutputLength: number): Buffer | undefined {
  try {
    return coding.sync(bytes, { maxOutputLength, finishFlush: coding.flush });
  } catch {
    return undefined;
  }
}
