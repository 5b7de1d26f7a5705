/**
 * Which field a line of YAML belongs to, read from its indentation: enough to find a field's documentation while the
 * text is being edited and may not parse. List positions read `*`. Pure.
 */

interface KeyLine {
  readonly key: string;
  readonly column: number;
  /** Columns of the dashes before the key. */
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
      // A value on a line of its own belongs to what stands further left.
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
      // The list's own key may stand in the column of its dashes.
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
