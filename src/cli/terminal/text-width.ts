/**
 * How many columns of a terminal a text takes: East Asian characters and pictures two, marks on other letters none.
 * Close enough to line up columns and to break lines; the screen library cuts what is still too long.
 */

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

/** The same, broken between words where that is possible; a word that is too long is broken anywhere. */
export function wrapWords(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/(?<= )/)) {
    if (textWidth(line) + textWidth(word.trimEnd()) <= width) {
      line += word;
      continue;
    }
    if (line.trim() !== "") lines.push(line.trimEnd());
    const pieces = breakLines(word, width);
    lines.push(...pieces.slice(0, -1));
    line = pieces.at(-1) ?? "";
  }
  return [...lines, line];
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
