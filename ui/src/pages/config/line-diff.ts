/**
 * Compares two texts line by line.
 */
export interface DiffLine {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
  readonly before: number | undefined;
  readonly after: number | undefined;
}

/**
 * Above this size, the middle is shown as removed and added, because a table of all line pairs would need too much
 * memory.
 */
const MAX_CELLS = 4_000_000;

export function lineDiff(before: string, after: string): DiffLine[] {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail += 1;
  const result: DiffLine[] = [];
  const same = (i: number, j: number): void =>
    void result.push({ kind: "same", text: now[j] ?? "", before: i + 1, after: j + 1 });
  for (let i = 0; i < head; i++) same(i, i);
  for (const [kind, i, j] of middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail))) {
    if (kind === "same") same(head + i, head + j);
    else if (kind === "removed")
      result.push({ kind, text: old[head + i] ?? "", before: head + i + 1, after: undefined });
    else result.push({ kind, text: now[head + j] ?? "", before: undefined, after: head + j + 1 });
  }
  for (let k = tail; k > 0; k--) same(old.length - k, now.length - k);
  return result;
}

type Step = readonly [kind: DiffLine["kind"], before: number, after: number];

/** Finds the longest common subsequence. */
function middle(old: readonly string[], now: readonly string[]): Step[] {
  const columns = now.length + 1;
  if ((old.length + 1) * columns > MAX_CELLS)
    return [...old.map((_line, i) => ["removed", i, 0] as const), ...now.map((_line, j) => ["added", 0, j] as const)];
  const lengths = new Uint32Array((old.length + 1) * columns);
  const at = (i: number, j: number): number => lengths[i * columns + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = now.length - 1; j >= 0; j--)
      lengths[i * columns + j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const steps: Step[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) steps.push(["same", i++, j++]);
    else if (j >= now.length || (i < old.length && at(i + 1, j) >= at(i, j + 1))) steps.push(["removed", i++, j]);
    else steps.push(["added", i, j++]);
  }
  return steps;
}
