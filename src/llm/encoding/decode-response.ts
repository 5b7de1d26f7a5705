/**
 * Decompresses responses that the gateway inspects. The size of the output is limited, also in proportion to the input,
 * because a few kilobytes can expand to gigabytes.
 */
import {
  brotliDecompress,
  brotliDecompressSync,
  constants,
  gunzip,
  gunzipSync,
  type InputType,
  inflate,
  inflateSync,
} from "node:zlib";

const MAX_DECODED_BYTES = 16 * 1024 * 1024;
/** Larger outputs are decompressed by other threads. It takes 10 to 20 ms to decompress this many bytes. */
const MAX_BYTES_AT_ONCE = 4 * 1024 * 1024;
/** JSON text and event streams are seldom compressed to less than a fiftieth. */
const MAX_RATIO = 100;
const ANY_RATIO_BYTES = 256 * 1024;

interface Options {
  readonly maxOutputLength: number;
  readonly finishFlush: number;
}

type Callback = (error: Error | null, decoded: Buffer) => void;

interface Decoder {
  readonly finishFlush: number;
  now(bytes: InputType, options: Options): Buffer;
  later(bytes: InputType, options: Options, done: Callback): void;
}

const GZIP: Decoder = { finishFlush: constants.Z_SYNC_FLUSH, now: gunzipSync, later: gunzip };
const DECODERS: Readonly<Record<string, Decoder>> = {
  gzip: GZIP,
  "x-gzip": GZIP,
  deflate: { finishFlush: constants.Z_SYNC_FLUSH, now: inflateSync, later: inflate },
  br: { finishFlush: constants.BROTLI_OPERATION_FLUSH, now: brotliDecompressSync, later: brotliDecompress },
};

export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding !== "" && contentEncoding.toLowerCase() !== "identity";
}

/**
 * Accepts a truncated response. Returns undefined if the encoding is not supported, the data is corrupt, or the output
 * exceeds `maxBytes` or 4 MiB, or is much larger than the input.
 */
export function decodeResponse(
  bytes: Buffer,
  contentEncoding: string | undefined,
  maxBytes = MAX_BYTES_AT_ONCE,
): Buffer | undefined {
  const decoder = decoderOf(contentEncoding);
  try {
    return decoder?.now(bytes, optionsFor(decoder, bytes, Math.min(maxBytes, MAX_BYTES_AT_ONCE)));
  } catch {
    return undefined;
  }
}

/** Does the same for outputs of up to 16 MiB, without blocking this thread. */
export function decodeResponseLater(bytes: Buffer, contentEncoding: string | undefined): Promise<Buffer | undefined> {
  const decoder = decoderOf(contentEncoding);
  if (decoder === undefined) return Promise.resolve(undefined);
  return new Promise((resolve) => {
    decoder.later(bytes, optionsFor(decoder, bytes, MAX_DECODED_BYTES), (error, decoded) =>
      resolve(error === null ? decoded : undefined),
    );
  });
}

function decoderOf(contentEncoding: string | undefined): Decoder | undefined {
  const name = contentEncoding?.toLowerCase() ?? "";
  return Object.hasOwn(DECODERS, name) ? DECODERS[name] : undefined;
}

function optionsFor({ finishFlush }: Decoder, { length }: Buffer, maxBytes: number): Options {
  return { finishFlush, maxOutputLength: Math.min(maxBytes, ANY_RATIO_BYTES + length * MAX_RATIO) };
}
