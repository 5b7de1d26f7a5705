/**
 * Empty lines before a request: some clients send one after a body (RFC 9112 section 2.2), none needs many. Half of a line
 * break is refused: to another reader it would be a part of the request.
 */
import { RequestError } from "./parse-request-head.ts";

const MAX_EMPTY_LINES = 8;
const LF = 10;
const CR = 13;

export class EmptyLines {
  #lines = 0;
  /** Half of an empty line has come. */
  #sawCr = false;

  /** Where the request begins; the end of the chunk if it has not begun. */
  skip(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at];
      if (this.#sawCr) {
        if (byte !== LF) throw new RequestError("bad", "a control character before the request");
        this.#sawCr = false;
        this.#lines += 1;
        if (this.#lines > MAX_EMPTY_LINES) throw new RequestError("bad", "too many empty lines before the request");
      } else if (byte === CR) this.#sawCr = true;
      else if (byte === LF) throw new RequestError("bad", "a control character before the request");
      else {
        this.#lines = 0;
        return at;
      }
    }
    return chunk.length;
  }
}
