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

export interface Place {
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

export function placeOf(files: readonly ConfigFile[] | undefined, name: string): Place | undefined {
  for (const { file, text, places } of files ?? []) {
    const place = places[name];
    if (place) return { file, line: place.line, text: dedent(text.split("\n").slice(place.line - 1, place.endLine)) };
  }
  return undefined;
}

/** Returns the first line of the place that matches one of the patterns, or the first line of the place. */
export function lineWith(place: Place, patterns: readonly (string | RegExp)[]): number {
  const lines = place.text.split("\n");
  for (const pattern of patterns) {
    const index = lines.findIndex((line) =>
      typeof pattern === "string" ? line.includes(pattern) : pattern.test(line),
    );
    if (index >= 0) return place.line + index;
  }
  return place.line;
}

export interface PolicyOwner {
  readonly phase: "gateway" | "route" | "backend";
  /** Names the part of the backend that the policy is attached to, for example `model fast`. */
  readonly of?: string | undefined;
  readonly listener: string;
  readonly route: string | null;
  /** The position of the backend among those of the route. */
  readonly backend: number;
}

/** A section such as `mcp` is a listener and a route, so a policy can be below either. */
export function placeOfPolicy(
  files: readonly ConfigFile[] | undefined,
  policy: string,
  owner: PolicyOwner,
): Place | undefined {
  const listener = `listener ${owner.listener}`;
  const route = `route ${owner.route ?? ""}`;
  const owners = {
    gateway: [listener, `route ${owner.listener}`, route],
    route: [route, listener],
    backend: [
      ...(owner.of === undefined ? [] : [`${route} of ${owner.of}`]),
      `${route} backend ${owner.backend}`,
      route,
    ],
  }[owner.phase];
  for (const name of owners) {
    const place = placeOf(files, `${name} policy ${policy}`);
    if (place) return place;
  }
  const documents = (files ?? []).flatMap(({ places }) =>
    Object.keys(places).filter((name) => name.startsWith("GatewayPolicy ") && name.endsWith(` policy ${policy}`)),
  );
  return documents.length === 1 ? placeOf(files, documents[0] ?? "") : undefined;
}

function dedent(lines: readonly string[]): string {
  const indents = lines.filter((line) => line.trim() !== "").map((line) => line.search(/\S/));
  const least = Math.min(...indents);
  return lines
    .map((line) => line.slice(least))
    .join("\n")
    .trimEnd();
}
