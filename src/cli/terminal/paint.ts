/**
 * Colors with a meaning, on terminals that show them; without them the words say the same. Applied to text that is
 * already printable: what traffic wrote never brings codes of its own.
 */
import type { Terminal } from "./terminal.ts";

export type Tone = "good" | "warn" | "bad" | "dim" | "bold";

export interface Paint {
  (text: string, tone: Tone | undefined): string;
  /** How wide the terminal is; undefined where nobody looks, for example in a pipe. */
  readonly columns?: number | undefined;
}

const CODES: Readonly<Record<Tone, number>> = { good: 32, warn: 33, bad: 31, dim: 2, bold: 1 };

export function paintOf({ hasColor, columns }: Pick<Terminal, "hasColor" | "columns">): Paint {
  const paint: Paint = hasColor
    ? (text, tone) => (tone === undefined || text === "" ? text : `\u001b[${CODES[tone]}m${text}\u001b[0m`)
    : (text) => text;
  return Object.assign(paint, { columns });
}

/** The tone of an HTTP status; none for what went well, so that the rest stands out. */
export function statusTone(status: number | null): Tone | undefined {
  if (status === null || status >= 500) return "bad";
  return status >= 400 ? "warn" : undefined;
}
