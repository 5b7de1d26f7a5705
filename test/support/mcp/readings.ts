/**
 * Everything that some server could read in a message. JSON libraries differ: the first or the last of repeated keys
 * counts, keys are compared with or without case, a list or a number becomes a string. Tests ask whether any of
 * these readings is a call of something forbidden.
 */

/** A JSON value that keeps repeated keys. */
type Node =
  | { readonly kind: "object"; readonly pairs: readonly (readonly [string, Node])[] }
  | { readonly kind: "array"; readonly items: readonly Node[] }
  | { readonly kind: "value"; readonly value: unknown };

export interface Reading {
  readonly method: string;
  readonly name: string;
}

/** Where each method names what it is about; keys without case. */
const CALLS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  "tools/call": [["name"]],
  "prompts/get": [["name"]],
  "resources/read": [["uri"]],
  "resources/subscribe": [["uri"]],
  "resources/unsubscribe": [["uri"]],
  "completion/complete": [
    ["ref", "name"],
    ["ref", "uri"],
  ],
  "subscriptions/listen": [["notifications", "resourcesubscriptions"]],
};

/** All calls in a text that is one message or a batch. Text that is no JSON is read by nobody. */
export function readings(text: string): Reading[] {
  const node = parse(text);
  if (node === undefined) return [];
  return (node.kind === "array" ? node.items : [node]).flatMap(readingsOf);
}

function readingsOf(message: Node): Reading[] {
  const params = under(message, "params");
  return under(message, "method")
    .flatMap(strings)
    .map((method) => method.trim().toLowerCase())
    .flatMap((method) =>
      (CALLS[method] ?? [])
        .flatMap((path) => path.reduce((nodes, key) => nodes.flatMap((node) => under(node, key)), params))
        .flatMap(strings)
        .map((name) => ({ method, name })),
    );
}

/** The values of all keys that could be taken for this one. */
function under(node: Node, key: string): Node[] {
  if (node.kind === "array") return node.items.flatMap((item) => under(item, key));
  if (node.kind !== "object") return [];
  return node.pairs.filter(([name]) => name.toUpperCase().toLowerCase() === key).map(([, value]) => value);
}

/** What a lenient server could make of a value where it wants a string. */
function strings(node: Node): string[] {
  if (node.kind === "value") return [String(node.value)];
  if (node.kind === "array") return node.items.flatMap(strings);
  return node.pairs.flatMap(([key, value]) => [key, ...strings(value)]);
}

function parse(text: string): Node | undefined {
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
  const value = (): Node => {
    space();
    const first = text[at];
    if (first === '"') return { kind: "value", value: string() };
    if (first === "{" || first === "[") {
      at += 1;
      const pairs: [string, Node][] = [];
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
