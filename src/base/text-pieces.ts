/**
 * A text whose bytes arrive in pieces. Those of a long one are decoded as they come, so that the end of 32 MiB costs a
 * copy and not a third of a second. However the bytes are cut, the text is the same.
 */
import { StringDecoder } from "node:string_decoder";

/** Up to this the bytes are kept and decoded at the end, which costs less. */
const SMALL_BYTES = 64 * 1024;

export class TextPieces {
  #held: Buffer[] = [];
  #bytes = 0;
  /** Not TextDecoder, whose strings take two bytes for each ASCII character. */
  #decoder: StringDecoder | undefined = undefined;
  readonly #texts: string[] = [];

  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#decoder === undefined) {
      // A copy: they may be those of a buffer that the next read fills.
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
