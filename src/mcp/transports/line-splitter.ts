/**
 * Turns the bytes of a pipe into lines. One line is held at most, up to a limit; what is larger is refused as
 * soon as the limit is passed, so that a server that never ends its line cannot fill our memory. It keeps no bytes that it
 * was given, but copies of them.
 */

import { ExpectedError } from "../../base/expected-error.ts";
import { TextPieces } from "../../base/text-pieces.ts";

const LF = 10;
const CR = 13;

export class LineTooLong extends ExpectedError {
  constructor(maxBytes: number) {
    super(`a line is longer than ${maxBytes} bytes`);
    this.name = "LineTooLong";
  }
}

export class LineSplitter {
  readonly #onLine: (line: string) => void;
  readonly #maxBytes: number;
  #held: TextPieces | undefined = undefined;

  constructor(onLine: (line: string) => void, maxBytes: number) {
    this.#onLine = onLine;
    this.#maxBytes = maxBytes;
  }

  /** Bytes of the line that has not ended yet. */
  get heldBytes(): number {
    return this.#held?.bytes ?? 0;
  }

  /** Throws LineTooLong, after the lines before it. Lines arrive without their end; empty ones are left out. */
  push(chunk: Buffer): void {
    const lines: string[] = [];
    try {
      this.#split(chunk, lines);
    } finally {
      // Only now: whoever takes a line may let others read into the same buffer.
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
    // A CR at the end is none of the line, if the LF comes.
    const isOver = this.#held.bytes > this.#maxBytes + (bytes[bytes.length - 1] === CR ? 1 : 0);
    if (isOver) throw new LineTooLong(this.#maxBytes);
  }
}
