/**
 * Files inside the single executable (scripts/package.mjs). Run by Node from a folder, there are none: everything lies
 * beside the bundle.
 */
import { getAsset, isSea } from "node:sea";

/** Lists the names of the embedded files: Node 20 cannot. */
export const EMBEDDED_LIST = "files.json";

/** Whether this process is the single executable: it finds nothing beside itself, and runs itself for a child. */
export function isOneFile(): boolean {
  return isSea();
}

export interface EmbeddedFolder {
  readonly names: readonly string[];
  read(name: string): Buffer;
}

/** The files below one folder; undefined when they are on disk. */
export function embeddedFolder(folder: string): EmbeddedFolder | undefined {
  if (!isSea()) return undefined;
  const prefix = `${folder}/`;
  const all = JSON.parse(getAsset(EMBEDDED_LIST, "utf8")) as string[];
  return {
    names: all.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length)),
    read: (name) => Buffer.from(getAsset(`${prefix}${name}`)),
  };
}

/** The text of one embedded file; undefined when it is on disk. */
export function embeddedText(name: string): string | undefined {
  return isSea() ? getAsset(name, "utf8") : undefined;
}
