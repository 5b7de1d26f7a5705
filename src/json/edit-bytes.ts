/**
 * Changes to a few places of a body without parsing or copying the rest: the answer is a list of pieces. A body of
 * 20 MB is then sent from where it lies.
 */

export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

export function applyEdits(bytes: Buffer, edits: readonly Edit[]): readonly Buffer[] {
  if (edits.length === 0) return [bytes];
  const pieces: Buffer[] = [];
  let from = 0;
  for (const { start, end, text } of [...edits].sort((a, b) => a.start - b.start)) {
    if (start > from) pieces.push(bytes.subarray(from, start));
    if (text !== "") pieces.push(Buffer.from(text));
    from = end;
  }
  if (from < bytes.length) pieces.push(bytes.subarray(from));
  return pieces;
}
