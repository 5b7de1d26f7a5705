/**
 * Finds the field of a YAML line from its indentation, which also works while the text does not parse. List positions
 * are returned as `*`.
 */

interface KeyLine {
  readonly key: string;
  readonly column: number;
  /** Contains the columns of the dashes before the key. */
  readonly dashes: readonly number[];
}

const KEY_LINE = /^(\s*)((?:- +)*)(?:([\w.$-]+)|"([^"]*)"|'([^']*)')\s*:(?:\s|$)/;

export function pathAt(lines: readonly string[], index: number): string[] {
  const path: string[] = [];
  let keyLimit = Number.POSITIVE_INFINITY;
  let dashLimit = Number.POSITIVE_INFINITY;
  for (let i = index; i >= 0; i--) {
    const line = parse(lines[i] ?? "");
    if (!line) {
      // A value on its own line is part of the key with less indentation.
      const indent = (lines[i] ?? "").search(/\S/);
      if (i === index && indent >= 0) keyLimit = Math.min(keyLimit, indent + 1);
      continue;
    }
    if (line.column < keyLimit) {
      path.unshift(line.key);
      keyLimit = line.column;
      dashLimit = line.column;
    }
    for (const dash of line.dashes.toReversed()) {
      if (dash >= dashLimit) continue;
      path.unshift("*");
      // The key of a list can be in the same column as its dashes.
      keyLimit = dash + 1;
      dashLimit = dash;
    }
    if (keyLimit === 0) break;
  }
  return path;
}

function parse(line: string): KeyLine | undefined {
  const match = KEY_LINE.exec(line);
  if (!match) return undefined;
  const [, indent = "", dashText = "", plain, double, single] = match;
  const dashes: number[] = [];
  for (const { index } of dashText.matchAll(/-/g)) dashes.push(indent.length + index);
  return { key: plain ?? double ?? single ?? "", column: indent.length + dashText.length, dashes };
}
