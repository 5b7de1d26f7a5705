/**
 * Places in a configuration: the path of a value, how it is written in messages, and the keys and positions of YAML
 * nodes that it is made from.
 */
import { isPair, isScalar, isSeq, type Node, type Pair } from "yaml";

export type Path = readonly (string | number)[];

/** `routes[0].backends`: how a place in the configuration is written in messages. */
export function pathText(path: Path): string {
  let text = "";
  for (const key of path) text += typeof key === "number" ? `[${key}]` : `${text === "" ? "" : "."}${shownName(key)}`;
  return text;
}

/** `{ key:abc }` and `{ key=abc }` are names to YAML: what is long behind the sign was meant as a value, perhaps a secret. */
export function shownName(key: string): string {
  return key.replace(/^([\w.-]+[:=]).{8,}$/s, "$1…");
}

/** The path of a scalar from the nodes above it, as the visitor reports them. */
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
