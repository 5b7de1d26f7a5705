/**
 * Inserts a field or a list item into the text of a YAML file. Only lines are added, so comments, order, and layout stay
 * unchanged. Missing parents are added too; a parent that is not written as an object or list is reported.
 */
import { isMap, isScalar, isSeq, type Node, type YAMLMap, type YAMLSeq } from "yaml";

/** New content as YAML text: a list item with fields, a list item on one line, or the value of a field. */
export type NewContent =
  | { readonly fields: readonly string[] }
  | { readonly item: string }
  | { readonly value: string };

/** `line` is the first line of the new content. */
export type Inserted = { readonly text: string; readonly line: number } | { readonly problem: string };

/** Adds the content at the path below a map. All but the last name of the path are objects. */
export function insertAt(text: string, map: YAMLMap, path: readonly string[], content: NewContent): Inserted {
  const [key = "", ...rest] = path;
  const child = map.get(key, true);
  if (child === undefined) return insertField(text, map, path, content);
  if (rest.length > 0)
    return isMap(child)
      ? insertAt(text, child, rest, content)
      : { problem: `\`${key}\` is not written as an object; edit it as text` };
  if ("value" in content) return { problem: `\`${key}\` is already set; edit it as text` };
  return isSeq(child)
    ? insertItem(text, child, content)
    : { problem: `\`${key}\` is empty or not written as a list; edit it as text` };
}

/** Adds lines at the end of the file, and the content below them as a field. */
export function appendTo(
  text: string,
  lines: readonly string[],
  field: { readonly name: string; readonly indent: string; readonly content: NewContent },
): Inserted {
  const before = text === "" || text.endsWith("\n") ? text : `${text}\n`;
  const added = [...lines, ...blockLines([field.name], field.content, field.indent)];
  return { text: `${before}${added.join("\n")}\n`, line: before.split("\n").length };
}

function insertItem(text: string, list: YAMLSeq, content: NewContent): Inserted {
  const last = list.items.at(-1);
  if (list.flow === true) {
    const at = last === undefined ? rangeOf(list)[0] + 1 : rangeOf(last)[1];
    return insertText(text, at, `${last === undefined ? "" : ", "}${flowText([], content)}`);
  }
  const [start] = rangeOf(last);
  const dash = text.lastIndexOf("-", start);
  const indent = text.slice(text.lastIndexOf("\n", dash) + 1, dash);
  return insertLines(text, endOfValue(text, last), itemLines(content, indent));
}

function insertField(text: string, map: YAMLMap, path: readonly string[], content: NewContent): Inserted {
  const last = map.items.at(-1);
  if (map.flow === true) {
    const flow = flowText(path, content);
    if (last === undefined) return insertText(text, rangeOf(map)[0] + 1, ` ${flow} `);
    return insertText(text, rangeOf(last.value ?? last.key)[1], `, ${flow}`);
  }
  const [start] = rangeOf(map.items[0]?.key);
  const indent = " ".repeat(start - (text.lastIndexOf("\n", start - 1) + 1));
  return insertLines(text, endOfValue(text, map), blockLines(path, content, indent));
}

function insertText(text: string, at: number, added: string): Inserted {
  return { text: text.slice(0, at) + added + text.slice(at), line: lineAt(text, at) };
}

/** Inserts after the line that contains the offset, so that a comment beside the value stays there. */
function insertLines(text: string, offset: number, lines: readonly string[]): Inserted {
  const next = text.indexOf("\n", offset);
  const at = next < 0 ? text.length : next;
  return { text: `${text.slice(0, at)}\n${lines.join("\n")}${text.slice(at)}`, line: lineAt(text, at) + 1 };
}

function blockLines([key = "", ...rest]: readonly string[], content: NewContent, indent: string): string[] {
  if (rest.length > 0) return [`${indent}${key}:`, ...blockLines(rest, content, `${indent}  `)];
  if ("value" in content) return [`${indent}${key}: ${content.value}`];
  return [`${indent}${key}:`, ...itemLines(content, `${indent}  `)];
}

function itemLines(content: NewContent, indent: string): string[] {
  if ("fields" in content) return content.fields.map((field, i) => `${indent}${i === 0 ? "- " : "  "}${field}`);
  return [`${indent}- ${"item" in content ? content.item : content.value}`];
}

/** Without a path, returns a list item. */
function flowText([key, ...rest]: readonly string[], content: NewContent): string {
  if (key === undefined) {
    if ("fields" in content) return `{ ${content.fields.join(", ")} }`;
    return "item" in content ? content.item : content.value;
  }
  if (rest.length > 0) return `${key}: { ${flowText(rest, content)} }`;
  return "value" in content ? `${key}: ${content.value}` : `${key}: [${flowText([], content)}]`;
}

/** Excludes trailing white space and comments, which belong to the next item. */
function endOfValue(text: string, item: unknown): number {
  if ((isMap(item) || isSeq(item)) && item.flow !== true && item.items.length > 0) {
    const last = item.items.at(-1);
    const inner = isMap(item) ? (last as { value: unknown; key: unknown }).value : last;
    if (inner !== null && inner !== undefined) return endOfValue(text, inner);
    if (isMap(item)) return endOfValue(text, (last as { key: unknown }).key);
  }
  const end = rangeOf(item)[1];
  // A block scalar ends at the start of the next line.
  return isScalar(item) && text[end - 1] === "\n" ? end - 1 : end;
}

function rangeOf(node: unknown): readonly [number, number, number] {
  return (node as Node | undefined)?.range ?? [0, 0, 0];
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}
