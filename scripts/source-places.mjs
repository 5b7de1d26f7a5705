/**
 * Maps positions in compiled files to their sources, for the failures of a test run. Node's `--enable-source-maps`
 * reads the map of every loaded file, which costs each test process half a second of CPU for maps that are rarely
 * needed.
 */
import { existsSync, readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

const PLACE = /((?:file:\/\/)?\/[^\s()]+\.js):(\d+):(\d+)/g;
const MAX_CAUSES = 5;
const maps = new Map();

/** Rewrites the stack of an error and of its causes. */
export function mapError(error, depth = 0) {
  if (typeof error !== "object" || error === null || depth > MAX_CAUSES) return;
  // From Node 26 on it may not be written.
  if (typeof error.stack === "string") Reflect.defineProperty(error, "stack", { value: mapText(error.stack) });
  mapError(error.cause, depth + 1);
}

/** A text with all places that have a source rewritten. */
export function mapText(text) {
  return text.replace(PLACE, (found, file, line, column) => {
    const place = mapPlace(file.startsWith("file:") ? fileURLToPath(file) : file, Number(line), Number(column));
    return place === undefined ? found : `${place.path}:${place.line}:${place.column}`;
  });
}

/** Lines and columns begin with 1; undefined if the file has no map, or the place is not in it. */
export function mapPlace(path, line, column) {
  const entry = mapOf(path)?.findEntry(line - 1, column - 1);
  if (entry?.originalSource === undefined) return undefined;
  return {
    path: resolve(path, "..", entry.originalSource),
    line: entry.originalLine + 1,
    column: entry.originalColumn + 1,
  };
}

function mapOf(path) {
  if (!maps.has(path)) {
    const file = `${path}.map`;
    maps.set(path, existsSync(file) ? new SourceMap(JSON.parse(readFileSync(file, "utf8"))) : undefined);
  }
  return maps.get(path);
}
