/**
 * The tokens of an answer that tells no usage: of JSON its strings, of other text all of it, of pictures and sound
 * nothing. The first 64 KiB are read and stand for the rest, so that no answer holds up the loop. A long string
 * without blanks is encoded data: it has the flat price of a picture.
 */
import { isUtf8 } from "node:buffer";
import { endOfString } from "../../json/json-string.ts";
import { estimateJsonTextTokens, estimateTextTokens } from "./estimate.ts";
import { flagsOfKey, SILENT } from "./prompt-keys.ts";

const READ_BYTES = 64 * 1024;
const MEDIA_TOKENS = 1000;
const MEDIA = /^(?:image|audio|video|font)\//i;
/** A string of this length that looks like base64 is no text. */
const ENCODED_BYTES = 512;
const BASE64 = /^[A-Za-z0-9+/=_-]+$/;
const QUOTE = 34;
const COLON = 58;
const OPEN_BRACKET = 91;
const OPEN_BRACE = 123;

/** Keeps the beginning of an answer as it goes by. */
export class AnswerText {
  readonly #contentType: string;
  #chunks: Buffer[] = [];
  #kept = 0;
  #bytes = 0;

  constructor(contentType: string) {
    this.#contentType = contentType;
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    const room = READ_BYTES - this.#kept;
    if (room <= 0) return;
    const part = chunk.subarray(0, room);
    this.#chunks.push(part);
    this.#kept += part.length;
  }

  tokens(): number {
    if (this.#kept === 0 || MEDIA.test(this.#contentType)) return 0;
    const read = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    const scale = this.#bytes / this.#kept;
    const start = skipBlanks(read, 0);
    if (read[start] === OPEN_BRACE || read[start] === OPEN_BRACKET || read[start] === QUOTE)
      return jsonTokens(read, start, scale);
    return isText(read) ? Math.ceil(estimateTextTokens(read) * scale) : 0;
  }
}

function jsonTokens(bytes: Buffer, from: number, scale: number): number {
  let text = 0;
  let media = 0;
  let key = 0;
  let endsInMedia = false;
  for (let i = from; i < bytes.length; ) {
    if (bytes[i] !== QUOTE) {
      i += 1;
      continue;
    }
    const start = i + 1;
    const end = Math.min(endOfString(bytes, start), bytes.length);
    i = skipBlanks(bytes, end + 1);
    endsInMedia = false;
    if (bytes[i] === COLON) key = flagsOfKey(bytes, start, end);
    else if ((key & SILENT) === 0) {
      if (isEncoded(bytes, start, end)) {
        media += MEDIA_TOKENS;
        endsInMedia = end === bytes.length;
      } else text += estimateJsonTextTokens(bytes, start, end);
    }
  }
  // What follows a picture that is longer than what was read is the rest of the picture.
  return Math.ceil(endsInMedia ? text : text * scale) + media;
}

function isEncoded(bytes: Buffer, start: number, end: number): boolean {
  return end - start >= ENCODED_BYTES && BASE64.test(bytes.toString("latin1", start, start + ENCODED_BYTES));
}

/** What was read may end within a character. */
function isText(bytes: Buffer): boolean {
  for (let cut = 0; cut < 4 && cut < bytes.length; cut++)
    if (isUtf8(bytes.subarray(0, bytes.length - cut))) return !bytes.includes(0);
  return false;
}

function skipBlanks(bytes: Buffer, from: number): number {
  let i = from;
  while (i < bytes.length && (bytes[i] as number) <= 32) i += 1;
  return i;
}
