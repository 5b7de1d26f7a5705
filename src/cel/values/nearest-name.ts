/**
 * Returns the known name that is closest to a misspelled one, for "did you mean" messages, or undefined if no name is
 * close.
 */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  const candidates = [...known];
  let best: string | undefined;
  // One letter or a third of the letters may differ, so `baz` is not a misspelling of `has`.
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = sameWord(name, candidate) ? 0 : editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  // A long name can also match by its first five letters, as `lowercase` matches `lowerAscii`.
  return best ?? candidates.find((candidate) => name.length >= 8 && candidate.startsWith(name.slice(0, 5)));
}

/** Returns `, did you mean "…"?` to append to a message, or an empty string. */
export function suggestion(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? "" : `, did you mean "${nearest}"?`;
}

function sameWord(name: string, candidate: string): boolean {
  const plain = (text: string) => text.replace(/[._-]/g, "").toLowerCase();
  return plain(name) === plain(candidate);
}

/** Counts insertions, deletions, replacements, and swaps of adjacent letters (`jtw`) as one edit each. */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const cell = (row: number, column: number) => rows[row]?.[column] ?? 0;
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    rows.push(current);
    for (let column = 1; column <= b.length; column++) {
      const replaced = cell(row - 1, column - 1) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const isSwap = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const swapped = isSwap ? cell(row - 2, column - 2) + 1 : replaced;
      current.push(Math.min(replaced, swapped, cell(row - 1, column) + 1, cell(row, column - 1) + 1));
    }
  }
  return cell(a.length, b.length);
}
