/**
 * Reads the header block of a response (RFC 7541) from a server that may not use a dynamic table. Names of the static
 * table, except `:status`, are skipped.
 */

/** The characters by the length of their Huffman codes, without the control characters and `\` (RFC 7541 appendix B). */
const CHARACTERS: ReadonlyMap<number, string> = new Map([
  [5, "012aceiost"],
  [6, " %-./3456789=A_bdfghlmnpru"],
  [7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"],
  [8, "&*,;XZ"],
  [10, '!"()?'],
  [11, "'+|"],
  [12, "#>"],
  [13, "\0$@[]~"],
  [14, "^}"],
  [15, "<`{"],
]);
const LONGEST_CODE = 15;

/** The codes are canonical: those of one length follow each other, and those of the next length follow them. */
const CODES = new Map<number, string>();
let code = 0;
for (let length = 1; length <= LONGEST_CODE; length++) {
  code *= 2;
  for (const character of CHARACTERS.get(length) ?? "") {
    CODES.set(keyOf(code, length), character);
    code += 1;
  }
}

const STATUSES = ["200", "204", "206", "304", "400", "404", "500"];
const FIRST_STATUS = 8;

/** Indexed names have no text, so that only literal names and `:status` are in the map. */
export function readResponseFields(block: Buffer): Map<string, string> {
  const fields = new Map<string, string>();
  let at = 0;
  const integer = (prefixBits: number): number => {
    const most = 2 ** prefixBits - 1;
    let value = (block[at++] as number) & most;
    if (value < most) return value;
    for (let shift = 0, byte = 128; byte >= 128; shift += 7) {
      byte = block[at++] as number;
      value += (byte & 127) * 2 ** shift;
    }
    return value;
  };
  const text = (): string => {
    const isCoded = (block[at] as number) >= 128;
    const length = integer(7);
    const bytes = block.subarray(at, at + length);
    at += length;
    return isCoded ? decodeHuffman(bytes) : bytes.toString("latin1");
  };
  while (at < block.length) {
    const first = block[at] as number;
    if (first >= 0x80) {
      const status = STATUSES[integer(7) - FIRST_STATUS];
      if (status !== undefined) fields.set(":status", status);
    } else if (first >= 0x20 && first < 0x40) {
      integer(5);
    } else {
      const index = integer(first >= 0x40 ? 6 : 4);
      const name =
        index === 0 ? text() : index >= FIRST_STATUS && index < FIRST_STATUS + STATUSES.length ? ":status" : "";
      fields.set(name, text());
    }
  }
  return fields;
}

function decodeHuffman(bytes: Buffer): string {
  let decoded = "";
  let value = 0;
  let length = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit--) {
      value = value * 2 + ((byte >> bit) & 1);
      length += 1;
      const character = CODES.get(keyOf(value, length));
      if (character === undefined) continue;
      decoded += character;
      value = 0;
      length = 0;
    }
  }
  // The padding consists of up to seven ones.
  if (length > 7 || value !== 2 ** length - 1) throw new Error("the Huffman code is not known");
  return decoded;
}

function keyOf(value: number, length: number): number {
  return value * 32 + length;
}
