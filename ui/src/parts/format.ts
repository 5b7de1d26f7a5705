/**
 * Formats names for the page. Numbers, times, sizes, and money have the same format as in gwctl.
 */
import { trimmed } from "../../../src/base/format.ts";
import { escapeControls } from "../../../src/base/safe-text.ts";

/** Shows round values without fractions, such as `25 ms` and `2.5 s`. */
export function axisDurationText(ms: number): string {
  if (ms === 0) return "0";
  if (ms < 1_000) return `${trimmed(ms)} ms`;
  return ms < 120_000 ? `${trimmed(ms / 1_000)} s` : `${trimmed(ms / 60_000)} min`;
}

/** Also shows characters without a shape, such as tags and zero-width marks, which could disguise a name. */
export function visible(text: string): string {
  return escapeControls(text).replace(
    /[\p{Cf}\t]|[\u{e0100}-\u{e01ef}]/gu,
    (char) => `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`,
  );
}

export function fileName(path: string): string {
  return visible(path.slice(path.lastIndexOf("/") + 1));
}
