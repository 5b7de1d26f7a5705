/**
 * A token count without a tokeniser, for admission (spec 8) and for answers that broke off before their usage.
 * Every byte-pair tokeniser that was tried can be made to block the process for seconds by 50 KB of hostile text;
 * this adds up one table entry per byte, and of longer texts only samples. The table knows what tokenisers do:
 * a word is about one token, digits go in groups, a blank belongs to the word behind it, signs run together,
 * and a character of another script has a weight of its own.
 * Within 25 % of the real count on ordinary English, code and CJK text; the real count replaces it afterwards.
 */

/** Of a longer text only this much is read, in evenly spaced pieces. */
export const SAMPLED_BYTES = 1536;
const PIECE_BYTES = 96;

type Kind = "sign" | "lower" | "upper" | "digit" | "blank" | "break" | "other";
const KINDS: readonly Kind[] = ["sign", "lower", "upper", "digit", "blank", "break", "other"];

/** What a byte of one kind costs behind a byte of another: `begin` unless a more exact entry stands beside it. */
const COSTS: Readonly<Record<Kind, { readonly begin: number; readonly after?: Partial<Record<Kind, number>> }>> = {
  // The first letter pays for the word, the others for the chance that it is cut.
  lower: { begin: 0.8, after: { lower: 0.065, upper: 0.06, other: 0.35 } },
  upper: { begin: 0.85, after: { lower: 0.75, upper: 0.24 } },
  digit: { begin: 0.85, after: { digit: 0.28 } },
  sign: { begin: 0.82, after: { sign: 0.46 } },
  // Line breaks join the sign before them, indentations the line break.
  break: { begin: 0.7, after: { sign: 0.15, break: 0 } },
  blank: { begin: 0, after: { blank: 0.06 } },
  other: { begin: 0 },
};

/** Tokens per character outside ASCII by its first byte in UTF-8; measured with the o200k vocabulary, some margin added. */
const SCRIPTS: readonly { readonly from: number; readonly to: number; readonly tokens: number }[] = [
  { from: 0xc2, to: 0xca, tokens: 0.5 }, // Latin with accents
  { from: 0xcb, to: 0xcf, tokens: 0.4 }, // Greek
  { from: 0xd0, to: 0xd4, tokens: 0.28 }, // Cyrillic
  { from: 0xd5, to: 0xdf, tokens: 0.38 }, // Hebrew, Arabic
  { from: 0xe0, to: 0xe1, tokens: 0.4 }, // Indic, Thai
  { from: 0xe2, to: 0xe2, tokens: 0.8 }, // typographic signs
  { from: 0xe3, to: 0xe3, tokens: 0.82 }, // kana and CJK signs
  { from: 0xe4, to: 0xe9, tokens: 0.86 }, // CJK
  { from: 0xea, to: 0xed, tokens: 0.82 }, // Hangul
  { from: 0xee, to: 0xef, tokens: 0.7 }, // full-width forms
  { from: 0xf0, to: 0xf4, tokens: 1.5 }, // emoji and rare characters
];

/** The kind of a byte, already at the place where it stands in an index of `COST`. */
const ROW_OF = Uint16Array.from({ length: 256 }, (_, byte) => KINDS.indexOf(kindOf(byte)) << 8);
/** By kind of the byte before (high bits) and the byte itself, in thousandths: whole numbers add up faster. */
const COST = Int32Array.from({ length: KINDS.length * 256 }, (_, index) =>
  Math.round(costOf(KINDS[index >> 8] as Kind, index & 255) * 1000),
);
const START = KINDS.indexOf("blank") << 8;

const BACKSLASH = 92;
/** The byte that an escape stands for, by the letter behind the backslash; all others stand for a sign. */
const ESCAPED: Readonly<Record<number, number>> = { 110: 10, 114: 13, 116: 9 };
const SIGN = 34;
const LETTER_U = 117;

/** Tokens in UTF-8 text. */
export function estimateTextTokens(bytes: Uint8Array, start = 0, end = bytes.length): number {
  return estimate(bytes, start, end, false, SAMPLED_BYTES);
}

/** Tokens in the text of a JSON string, escapes and all, between its quotes; at most `sampledBytes` of it are read. */
export function estimateJsonTextTokens(
  bytes: Buffer,
  start: number,
  end: number,
  sampledBytes = SAMPLED_BYTES,
): number {
  // Most texts have no escapes, and are added up twice as fast.
  return estimate(bytes, start, end, bytes.subarray(start, end).includes(BACKSLASH), sampledBytes);
}

function estimate(bytes: Uint8Array, start: number, end: number, hasEscapes: boolean, sampledBytes: number): number {
  const length = end - start;
  const add = hasEscapes ? addJsonCosts : addCosts;
  if (length <= sampledBytes) return Math.ceil(add(bytes, start, end, START) / 1000);
  const pieces = Math.max(1, Math.floor(sampledBytes / PIECE_BYTES));
  const size = Math.min(PIECE_BYTES, sampledBytes);
  // Several pieces reach from the beginning to the end; one alone stands anywhere, so that a hundred texts that are
  // alike are not all read at the same place.
  const stride = pieces === 1 ? 0 : Math.floor((length - size) / (pieces - 1));
  const first = pieces === 1 ? start + ((Math.imul(start, 0x9e3779b1) >>> 0) % (length - size)) : start;
  let thousandths = 0;
  for (let piece = 0; piece < pieces; piece++) {
    const from = first + piece * stride;
    // A piece begins where it begins in the text: in the middle of a word no new word is paid for.
    const before = from === start ? START : (ROW_OF[bytes[from - 1] as number] as number);
    thousandths += add(bytes, from, from + size, before);
  }
  return Math.ceil((thousandths * length) / (pieces * size * 1000));
}

function addCosts(bytes: Uint8Array, start: number, end: number, before: number): number {
  let thousandths = 0;
  let row = before;
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    thousandths = (thousandths + (COST[row | byte] as number)) | 0;
    row = ROW_OF[byte] as number;
  }
  return thousandths;
}

function addJsonCosts(bytes: Uint8Array, start: number, end: number, before: number): number {
  let thousandths = 0;
  let row = before;
  for (let i = start; i < end; i++) {
    let byte = bytes[i] as number;
    if (byte === BACKSLASH && i + 1 < end) {
      i += 1;
      const letter = bytes[i] as number;
      if (letter === LETTER_U) {
        byte = leadByteOf(bytes, i + 1);
        i += 4;
      } else byte = ESCAPED[letter] ?? SIGN;
    }
    thousandths = (thousandths + (COST[row | byte] as number)) | 0;
    row = ROW_OF[byte] as number;
  }
  return thousandths;
}

/** The first byte in UTF-8 of the character that four hexadecimal digits name; it decides what the character costs. */
function leadByteOf(bytes: Uint8Array, at: number): number {
  let code = 0;
  for (let i = at; i < at + 4; i++) code = (code << 4) | hexOf(bytes[i] ?? 0);
  if (code < 0x80) return code;
  if (code < 0x800) return 0xc0 | (code >> 6);
  // The first half of a pair is paid for the whole, the second costs nothing, like a byte in the middle.
  if (code >= 0xd800 && code < 0xdc00) return 0xf0;
  if (code >= 0xdc00 && code < 0xe000) return 0x80;
  return 0xe0 | (code >> 12);
}

function hexOf(byte: number): number {
  return byte <= 57 ? byte & 15 : ((byte & 15) + 9) & 15;
}

function costOf(before: Kind, byte: number): number {
  if (byte >= 0x80) return SCRIPTS.find(({ from, to }) => byte >= from && byte <= to)?.tokens ?? 0;
  const { begin, after } = COSTS[kindOf(byte)];
  return after?.[before] ?? begin;
}

function kindOf(byte: number): Kind {
  if (byte >= 0x80) return "other";
  if (byte >= 97 && byte <= 122) return "lower";
  if (byte >= 65 && byte <= 90) return "upper";
  if (byte >= 48 && byte <= 57) return "digit";
  if (byte === 32 || byte === 9) return "blank";
  if (byte === 10 || byte === 13) return "break";
  return "sign";
}
