/**
 * How many columns of a terminal a text takes: East Asian characters and pictures two, marks on other letters none.
 * Close enough to line up columns and to break lines; the screen library cuts what is still too long.
 */

/** Where a long name can be read as two. */
const PART_END = /[-_./:,;=&?|]$/;
/** The last such place. */
const PARTS_END = /[-_./:,;=&?|][^-_./:,;=&?|]*$/;
const MARK = /^(?:\p{M}|[\u200b-\u200d])$/u;
const WIDE: readonly (readonly [from: number, to: number])[] = [
  [0x1100, 0x115f],
  [0x2e80, 0xa4cf],
  [0xac00, 0xd7a3],
  [0xf900, 0xfaff],
  [0xfe30, 0xfe6f],
  [0xff00, 0xff60],
  [0xffe0, 0xffe6],
  [0x1f300, 0x1faff],
  [0x20000, 0x3fffd],
];

export function textWidth(text: string): number {
  if (isAscii(text)) return text.length;
  let width = 0;
  for (const char of text) width += charWidth(char);
  return width;
}

/** The text in pieces that fit; a character is never split. */
export function breakLines(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  let used = 0;
  for (const char of text) {
    const columns = charWidth(char);
    if (used + columns > width && line !== "") {
      lines.push(line);
      line = "";
      used = 0;
    }
    line += char;
    used += columns;
  }
  return [...lines, line];
}

/** The same, broken between words where that is possible; a word that is too long is broken between its parts, or anywhere. */
export function wrapWords(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/(?<= )/)) {
    if (textWidth(line) + textWidth(word.trimEnd()) <= width) {
      line += word;
      continue;
    }
    const pieces = wordPieces(line, word.trimEnd(), width);
    lines.push(...pieces.slice(0, -1));
    line = `${pieces.at(-1) ?? ""}${word.endsWith(" ") ? " " : ""}`;
  }
  return [...lines, line];
}

/** A word that is too long for any line begins on this one if a part of it has room here. */
function wordPieces(line: string, word: string, width: number): string[] {
  const joined = textWidth(word) > width ? breakWord(line + word, width) : [];
  const [first = ""] = joined;
  if (first.length > line.length && PART_END.test(first)) return joined;
  return [...(line.trim() === "" ? [] : [line.trimEnd()]), ...breakWord(word, width)];
}

/** After a mark that ends a part of a name, unless that leaves most of the line empty. */
function breakWord(word: string, width: number): string[] {
  const lines: string[] = [];
  let rest = word;
  while (textWidth(rest) > width) {
    const [first = rest] = breakLines(rest, width);
    const part = first.slice(0, first.search(PARTS_END) + 1);
    const piece = textWidth(part) * 3 > width ? part : first;
    lines.push(piece);
    rest = rest.slice(piece.length);
  }
  return [...lines, rest];
}

function charWidth(char: string): number {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x300) return 1;
  if (MARK.test(char)) return 0;
  return WIDE.some(([from, to]) => code >= from && code <= to) ? 2 : 1;
}

function isAscii(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0x7f) return false;
  return true;
}
