/**
 * A tool's definition as text to read and to compare line by line: what a model reads of it stands as lines, not as one
 * string, and every character that could hide something is made visible. The name stands above it. Pure.
 */
import { visible } from "../../parts/format.ts";

export type Definition = Readonly<Record<string, unknown>>;

export function definitionText(definition: Definition): string {
  return Object.entries(definition)
    .filter(([name]) => name !== "name")
    .map(([name, value]) => `${visible(name)}: ${typeof value === "string" ? textOf(value) : jsonOf(value)}`)
    .join("\n");
}

/** Continued lines are indented, so that no text can look like the next field. */
function textOf(text: string): string {
  return text
    .split(/\r\n|[\n\u2028\u2029]/)
    .map(visible)
    .join("\n    ");
}

function jsonOf(value: unknown): string {
  return (JSON.stringify(value, null, 2) ?? "").split("\n").map(visible).join("\n");
}
