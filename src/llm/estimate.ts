/**
 * A token count without a tokeniser, for admission (spec 8) and for answers that broke off before their usage.
 * Every byte-pair tokeniser that was tried can be made to block the process for seconds by 50 KB of hostile text;
 * this adds up one table entry per byte, and of long texts only samples. The table knows what tokenisers do:
 * a word is about one token, digits go in groups, a blank belongs to the word behind it, signs run together,
 * and a character of another script has a weight of its own.
 * Within 25 % of the real count on ordinary English, code and CJK text; the real count replaces it afterwards.
 */

/** Of a longer text only this much is read, in evenly spaced pieces. */
const SAMPLED_BYTES = 8 * 1024;
const PIECE_BYTES = 512;

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

const KIND_OF = Uint8Array.from({ length: 256 }, (_, byte) => KINDS.indexOf(kindOf(byte)));
/** By kind of the byte before (high bits) and the byte itself, in thousandths: whole numbers add up faster. */
const COST = Int32Array.from({ length: KINDS.length * 256 }, (_, index) =>
  Math.round(costOf(KINDS[index >> 8] as Kind, index & 255) * 1000),
);
const START = KINDS.indexOf("blank");

/** Tokens in UTF-8 text. */
export function estimateTextTokens(bytes: Uint8Array, start = 0, end = bytes.length): number {
  const length = end - start;
  if (length <= SAMPLED_BYTES) return Math.ceil(addCosts(bytes, start, end));
  const pieces = SAMPLED_BYTES / PIECE_BYTES;
  const stride = Math.floor((length - PIECE_BYTES) / (pieces - 1));
  let tokens = 0;
  for (let piece = 0; piece < pieces; piece++) {
    const from = start + piece * stride;
    tokens += addCosts(bytes, from, from + PIECE_BYTES);
  }
  return Math.ceil((tokens * length) / SAMPLED_BYTES);
}

function addCosts(bytes: Uint8Array, start: number, end: number): number {
  let thousandths = 0;
  let before = START;
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    thousandths = (thousandths + (COST[(before << 8) | byte] as number)) | 0;
    before = KIND_OF[byte] as number;
  }
  return thousandths / 1000;
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
