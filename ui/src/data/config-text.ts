/**
 * Polls the configuration files with secrets redacted, for the editor and for links to a file and line.
 */
import { about, isReadOnly } from "./about.ts";
import { getJson } from "./api.ts";
import { createPoll } from "./poll.ts";

export interface ConfigFile {
  readonly file: string;
  readonly base: string;
  readonly text: string;
  readonly places: Readonly<Record<string, { readonly line: number; readonly endLine: number }>>;
}

/**
 * A gateway listener does not serve the text, so the page does not request it there. Each rejection would appear in
 * the request history.
 */
export const configText = createPoll(async () => {
  if (about.value.peek() === undefined) await about.refresh();
  return isReadOnly.peek() ? { files: [] } : getJson<{ files: ConfigFile[] }>("config-text");
}, 10_000);

export function placeOf(
  files: readonly ConfigFile[] | undefined,
  name: string,
): { file: string; line: number; text: string } | undefined {
  for (const { file, text, places } of files ?? []) {
    const place = places[name];
    if (place) return { file, line: place.line, text: dedent(text.split("\n").slice(place.line - 1, place.endLine)) };
  }
  return undefined;
}

function dedent(lines: readonly string[]): string {
  const indents = lines.filter((line) => line.trim() !== "").map((line) => line.search(/\S/));
  const least = Math.min(...indents);
  return lines
    .map((line) => line.slice(least))
    .join("\n")
    .trimEnd();
}
