/**
 * A client says nearly the same with each request of a connection: a head of the very bytes of the last one is not read
 * again. Kept from the second of its length on, so that connections which wait after one request hold nothing.
 */
import type { ParsedRequest } from "./parse-request-head.ts";

/** Longer ones are read each time. */
const KEPT_BYTES = 4 * 1024;
/** A client whose heads differ each time, after so many in a row: they are kept no more. */
const GIVES_UP_AFTER = 8;

export class RepeatedHead {
  #bytes: Buffer | undefined = undefined;
  #request: ParsedRequest | undefined = undefined;
  #lastLength = 0;
  #misses = 0;

  /** The length of the head, with the empty line that ends it; 0 if other bytes are there. */
  lengthAt(chunk: Buffer, at: number): number {
    const bytes = this.#bytes;
    if (bytes === undefined) return 0;
    const end = at + bytes.length;
    const isSame = end <= chunk.length && bytes.compare(chunk, at, end) === 0;
    this.#misses = isSame ? 0 : this.#misses + 1;
    return isSame ? bytes.length : 0;
  }

  /** What that head says, with a list of its own. */
  get request(): ParsedRequest | undefined {
    return this.#request && copyOf(this.#request);
  }

  /** `from` to `to`: where the head was read that said this. */
  remember(request: ParsedRequest, chunk: Buffer, from: number, to: number): void {
    const length = to - from;
    if (this.#misses > GIVES_UP_AFTER) {
      // Nothing of a head, which may hold a credential, stays without use.
      this.#bytes = undefined;
      this.#request = undefined;
    } else if (length === this.#lastLength && length <= KEPT_BYTES) {
      this.#bytes = Buffer.from(chunk.subarray(from, to));
      this.#request = copyOf(request);
      flatten(this.#request.pairs);
    }
    this.#lastLength = length;
  }
}

/** Values are slices of the head's text; read again and again, texts of their own cost less, in comparisons and as keys. */
function flatten(pairs: string[]): void {
  for (let i = 1; i < pairs.length; i += 2) pairs[i] = Buffer.from(pairs[i] as string, "latin1").toString("latin1");
}

/** Field by field: that is faster than a spread. */
function copyOf(request: ParsedRequest): ParsedRequest {
  return {
    method: request.method,
    target: request.target,
    version: request.version,
    pairs: request.pairs.slice(),
    areLinesSafe: true,
    isChunked: request.isChunked,
    contentLength: request.contentLength,
    keepAlive: request.keepAlive,
    expects: request.expects,
    upgrade: request.upgrade,
    fault: request.fault,
  };
}
