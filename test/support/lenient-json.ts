/**
 * Parses JSON in all ways that servers do. Libraries differ in repeated keys, case, and conversion of lists and
 * numbers to strings, so all interpretations are kept.
 */

/** A JSON value that keeps repeated keys. */
export type LenientNode =
  | { readonly kind: "object"; readonly pairs: readonly (readonly [string, LenientNode])[] }
  | { readonly kind: "array"; readonly items: readonly LenientNode[] }
  | { readonly kind: "value"; readonly value: unknown };

/** The values of all keys that could be taken for this one. */
export function valuesUnder(node: LenientNode, key: string): LenientNode[] {
  if (node.kind === "array") return node.items.flatMap((item) => valuesUnder(item, key));
  if (node.kind !== "object") return [];
  return node.pairs.filter(([name]) => name.toUpperCase().toLowerCase() === key).map(([, value]) => value);
}

/** What a lenient server could make of a value where it wants a string. */
export function stringsOf(node: LenientNode): string[] {
  if (node.kind === "value") return [String(node.value)];
  if (node.kind === "array") return node.items.flatMap(stringsOf);
  return node.pairs.flatMap(([key, value]) => [key, ...stringsOf(value)]);
}

/** Undefined for text that is no JSON to anybody. */
export function parseLeniently(text: string): LenientNode | undefined {
  let at = 0;
  const space = (): void => {
    while (/\s|\ufeff/.test(text[at] ?? "x")) at += 1;
  };
  const string = (): string => {
    const end = /"(?:[^"\\]|\\.)*"/gsu;
    end.lastIndex = at;
    const found = end.exec(text)?.[0] ?? "";
    at += found.length;
    return JSON.parse(found) as string;
  };
  const value = (): LenientNode => {
    space();
    const first = text[at];
    if (first === '"') return { kind: "value", value: string() };
    if (first === "{" || first === "[") {
      at += 1;
      const pairs: [string, LenientNode][] = [];
      for (space(); text[at] !== "}" && text[at] !== "]"; space()) {
        if (at >= text.length) throw new Error("no end");
        const key = first === "{" ? string() : "";
        space();
        if (first === "{") at += 1;
        pairs.push([key, value()]);
        space();
        if (text[at] === ",") at += 1;
      }
      at += 1;
      return first === "{" ? { kind: "object", pairs } : { kind: "array", items: pairs.map(([, one]) => one) };
    }
    const word = /[^\s,\]}]*/y;
    word.lastIndex = at;
    const found = word.exec(text)?.[0] ?? "";
    if (found === "") throw new Error("no value");
    at += found.length;
    return { kind: "value", value: JSON.parse(found) };
  };
  try {
    return value();
  } catch {
    return undefined;
  }
}
