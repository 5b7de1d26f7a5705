/**
 * Decodes a string whose bytes arrive in chunks. Long strings are decoded chunk by chunk, because decoding them at the
 * end would block the event loop. The result does not depend on how the bytes are split.
 */
import { StringDecoder } from "node:string_decoder";

const SMALL_BYTES = 64 * 1024;

export class TextPieces {
  #held: Buffer[] = [];
  #bytes = 0;
  #decoder: StringDecoder | undefined = undefined;
  readonly #texts: string[] = [];

  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#decoder === undefined) {
      // The next read may reuse the buffer, so the bytes are copied.
      this.#held.push(Buffer.from(bytes));
      if (this.#bytes <= SMALL_BYTES) return;
      this.#decoder = new StringDecoder("utf8");
      for (const one of this.#held) this.#texts.push(this.#decoder.write(one));
      this.#held = [];
    } else this.#texts.push(this.#decoder.write(bytes));
  }

  end(): string {
    if (this.#decoder === undefined)
      return (this.#held.length === 1 ? (this.#held[0] as Buffer) : Buffer.concat(this.#held)).toString();
    this.#texts.push(this.#decoder.end());
    return this.#texts.join("");
  }
}
