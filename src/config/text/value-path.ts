/**
 * Handles paths of values in a configuration, their notation in messages, and the keys and positions of YAML nodes.
 */
import { isPair, isScalar, isSeq, type Node, type Pair } from "yaml";

export type Path = readonly (string | number)[];

export function pathText(path: Path): string {
  let text = "";
  for (const key of path) text += typeof key === "number" ? `[${key}]` : `${text === "" ? "" : "."}${shownName(key)}`;
  return text;
}

/**
 * YAML parses `{ key:abc }` and `{ key=abc }` as names. A long part after the sign is probably a value that may be a
 * secret, so it is hidden.
 */
export function shownName(key: string): string {
  return key.replace(/^([\w.-]+[:=]).{8,}$/s, "$1…");
}

export function pathOf(above: readonly unknown[], node: Node): Path {
  const path: (string | number)[] = [];
  for (const [i, parent] of above.entries()) {
    const child = above[i + 1] ?? node;
    if (isSeq(parent)) path.push(parent.items.indexOf(child as never));
    else if (isPair(parent)) path.push(keyOf(parent));
  }
  return path;
}

export function keyOf(pair: Pair): string {
  return isScalar(pair.key) ? String(pair.key.value) : "";
}

export function startOf(node: unknown, otherwise = 0): number {
  return (node as Node | null | undefined)?.range?.[0] ?? otherwise;
}
