/**
 * Formats a tool definition as lines that can be compared. Characters that could hide content are made visible.
 */
import { visible } from "../../parts/format.ts";

export type Definition = Readonly<Record<string, unknown>>;

export function definitionText(definition: Definition): string {
  return Object.entries(definition)
    .filter(([name]) => name !== "name")
    .map(([name, value]) => `${visible(name)}: ${typeof value === "string" ? textOf(value) : jsonOf(value)}`)
    .join("\n");
}

/** Continuation lines are indented, so that no description can look like the next field. */
function textOf(text: string): string {
  return text
    .split(/\r\n|[\n\u2028\u2029]/)
    .map(visible)
    .join("\n    ");
}

function jsonOf(value: unknown): string {
  return (JSON.stringify(value, null, 2) ?? "").split("\n").map(visible).join("\n");
}
