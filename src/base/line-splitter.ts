/**
 * Splits the bytes of a peer, or the text of a file, into lines.
 */
import { ExpectedError } from "./errors.ts";
import type { PeerInput } from "./peer-inputs.ts";
import { TextPieces } from "./text-pieces.ts";

const LF = 10;
const CR = 13;

export class LineTooLong extends ExpectedError {
  constructor(maxBytes: number) {
    super(`a line is longer than ${maxBytes} bytes`);
    this.name = "LineTooLong";
  }
}

/** Splits at line feeds only. The caller limits the number of lines. Throws `LineTooLong`. */
export function readLines({ maxBytes }: PeerInput<"lines">, text: string): string[] {
  const lines = text.split("\n");
  if (lines.some((line) => line.length > maxBytes)) throw new LineTooLong(maxBytes);
  return lines;
}

/**
 * Splits a byte stream into lines. It copies the bytes of the incomplete line, because the caller may reuse the buffer.
 */
export class LineSplitter {
  readonly #onLine: (line: string) => void;
  readonly #maxBytes: number;
  #held: TextPieces | undefined = undefined;

  constructor({ maxBytes }: PeerInput<"lines">, onLine: (line: string) => void) {
    this.#onLine = onLine;
    this.#maxBytes = maxBytes;
  }

  get heldBytes(): number {
    return this.#held?.bytes ?? 0;
  }

  /**
   * Delivers non-empty lines without line endings. If a line is too long, the lines before it are delivered before
   * `LineTooLong` is thrown.
   */
  push(chunk: Buffer): void {
    const lines: string[] = [];
    try {
      this.#split(chunk, lines);
    } finally {
      // A receiver may trigger another read into the same buffer, so lines are delivered after the chunk is processed.
      for (const line of lines) this.#onLine(line);
    }
  }

  #split(chunk: Buffer, lines: string[]): void {
    let start = 0;
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, start)) {
      const line =
        this.#held === undefined ? this.#line(chunk, start, at) : this.#endHeld(this.#held, chunk.subarray(start, at));
      if (line !== "") lines.push(line);
      start = at + 1;
    }
    if (start < chunk.length) this.#hold(start === 0 ? chunk : chunk.subarray(start));
  }

  #line(bytes: Buffer, start: number, lineEnd: number): string {
    const end = lineEnd > start && bytes[lineEnd - 1] === CR ? lineEnd - 1 : lineEnd;
    if (end - start > this.#maxBytes) throw new LineTooLong(this.#maxBytes);
    return bytes.toString("utf8", start, end);
  }

  #endHeld(held: TextPieces, rest: Buffer): string {
    this.#held = undefined;
    held.add(rest);
    const text = held.end();
    const isReturn = text.endsWith("\r");
    if (held.bytes - (isReturn ? 1 : 0) > this.#maxBytes) throw new LineTooLong(this.#maxBytes);
    return isReturn ? text.slice(0, -1) : text;
  }

  #hold(bytes: Buffer): void {
    this.#held ??= new TextPieces();
    this.#held.add(bytes);
    // A trailing CR may be half of a CRLF, so it is not counted.
    const isOver = this.#held.bytes > this.#maxBytes + (bytes[bytes.length - 1] === CR ? 1 : 0);
    if (isOver) throw new LineTooLong(this.#maxBytes);
  }
}
