/**
 * Implements the framing that HTTP/1.1 requests and responses share, which consists of lines and chunked bodies (RFC
 * 9112 section 7.1).
 */
import { JoinedBytes } from "../../base/joined-bytes.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";

export const TAB = 9;
export const LF = 10;
export const CR = 13;
export const SPACE = 32;
export const SEMICOLON = 59;
export const CRLF = Buffer.from("\r\n");
export const END_OF_HEAD = Buffer.from("\r\n\r\n");

export const MAX_TRAILER_BYTES = 8 * 1024;
/** Eight hex digits allow almost 4 GiB in one chunk. */
const MAX_SIZE_DIGITS = 8;

/** Trims spaces and tabs only. `trim()` would also remove the byte 0xA0. */
export function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** Returns whether a comma-separated header value, such as `connection`, contains the token. Both must be lowercase. */
export function listsToken(list: string, token: string): boolean {
  if (list === token) return true;
  if (!list.includes(token)) return false;
  return list.split(",").some((one) => trimmed(one, 0, one.length) === token);
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB;
}

export function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

export const NOT_YET = -1;
export const TOO_LONG = -2;

/** Extracts the text before a mark (a line break or an empty line) from bytes that arrive in several reads. */
class LineBuffer {
  text = "";
  #held: Buffer | undefined = undefined;
  readonly #joined = new JoinedBytes();
  #heldBefore = 0;

  get held(): Buffer | undefined {
    return this.#held;
  }

  /** The number of held bytes that arrived before the last read. */
  get heldBefore(): number {
    return this.#heldBefore;
  }

  clear(): void {
    this.#held = undefined;
    this.#joined.clear();
    this.#heldBefore = 0;
  }

  /** Sets `text` and returns the offset to continue at, or returns NOT_YET or TOO_LONG. */
  take(chunk: Buffer, at: number, mark: Buffer, maxBytes: number): number {
    const held = this.#held;
    const all = held === undefined ? chunk : this.#join(held, chunk.subarray(at));
    const start = held === undefined ? at : 0;
    this.#heldBefore = held === undefined ? 0 : held.length;
    const end = all.indexOf(mark, start + Math.max(0, this.#heldBefore - mark.length + 1));
    // Until the mark arrives, all bytes except a possible beginning of the mark precede it.
    const before = (end < 0 ? all.length - mark.length + 1 : end) - start;
    if (before > maxBytes) return TOO_LONG;
    if (end < 0) {
      this.#held = all.subarray(start);
      return NOT_YET;
    }
    this.text = all.toString("latin1", start, end);
    const consumed = end + mark.length - start;
    if (held === undefined) return at + consumed;
    this.clear();
    return at + consumed - held.length;
  }

  /** The first piece is not copied, because most lines arrive in one or two. */
  #join(held: Buffer, chunk: Buffer): Buffer {
    if (this.#joined.length === 0) this.#joined.add(held);
    return this.#joined.add(chunk);
  }
}

export type ChunkState =
  | "chunk-size"
  | "chunk-extension"
  | "chunk-size-end"
  | "chunk-data"
  | "chunk-end"
  | "chunk-end-end"
  | "trailers";

export abstract class ChunkedParser<State extends string> {
  protected abstract state: State | ChunkState;
  protected readonly line = new LineBuffer();
  protected left = 0;
  protected digits = 0;
  /** Limits the extensions of all chunks of a body, because they are cheap to send and are ignored, and the trailers. */
  protected readonly framing: PeerInput<"HTTP body">;
  protected extensionBytes = 0;

  constructor(framing: PeerInput<"HTTP body">) {
    this.framing = framing;
  }

  /** Throws the parser's type of error. The connection cannot be used afterwards. */
  protected abstract fail(reason: string): never;

  protected abstract readData(chunk: Buffer, at: number): number;
  protected abstract readChunkSize(chunk: Buffer, at: number): number;
  protected abstract readChunkExtension(chunk: Buffer, at: number): number;
  protected abstract readTrailer(chunk: Buffer, at: number): number;

  protected readBody(chunk: Buffer, at: number): number {
    switch (this.state) {
      case "chunk-size":
        return this.readChunkSize(chunk, at);
      case "chunk-extension":
        return this.readChunkExtension(chunk, at);
      case "chunk-size-end":
      case "chunk-end":
      case "chunk-end-end":
        return this.#readChunkBreak(chunk, at);
      case "trailers":
        return this.readTrailer(chunk, at);
      default:
        return this.readData(chunk, at);
    }
  }

  protected nextChunk(): void {
    this.state = "chunk-size";
    this.left = 0;
    this.digits = 0;
  }

  /** Reads hex digits and returns the offset of the first byte after them, or the end of the chunk. */
  protected readSizeDigits(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const digit = hexDigit(chunk[at] as number);
      if (digit < 0) {
        if (this.digits === 0) this.fail("a chunk size is not a number");
        return at;
      }
      this.left = this.left * 16 + digit;
      this.digits += 1;
      if (this.digits > MAX_SIZE_DIGITS) this.fail("a chunk size is too large");
    }
    return chunk.length;
  }

  #readChunkBreak(chunk: Buffer, at: number): number {
    if (chunk[at] !== (this.state === "chunk-end" ? CR : LF)) this.fail("a chunk does not match its size");
    if (this.state === "chunk-end") this.state = "chunk-end-end";
    else if (this.state === "chunk-end-end") this.nextChunk();
    else this.state = this.left === 0 ? "trailers" : "chunk-data";
    return at + 1;
  }
}
