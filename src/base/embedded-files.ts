/**
 * Reads files embedded in the single executable (scripts/package.mjs).
 */
import { getAsset, isSea } from "node:sea";

/** Lists the names of the embedded files, because Node 20 cannot enumerate them. */
export const EMBEDDED_LIST = "files.txt";

export function isOneFile(): boolean {
  return isSea();
}

export interface EmbeddedFolder {
  readonly names: readonly string[];
  read(name: string): Buffer;
}

/** Returns undefined unless this process runs the single executable. */
export function embeddedFolder(folder: string): EmbeddedFolder | undefined {
  if (!isSea()) return undefined;
  const prefix = `${folder}/`;
  const all = getAsset(EMBEDDED_LIST, "utf8").split("\n");
  return {
    names: all.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length)),
    read: (name) => Buffer.from(getAsset(`${prefix}${name}`)),
  };
}

/** Returns undefined unless this process runs the single executable. */
export function embeddedText(name: string): string | undefined {
  return isSea() ? getAsset(name, "utf8") : undefined;
}
