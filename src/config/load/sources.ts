/**
 * Where the configuration comes from: the paths of `-f`, standard input (read once), or one built-in text; and the
 * whole of it as one text, by which the watcher notices a change.
 */
import { readFileSync } from "node:fs";
import { filesOf, readSources, type SourceText, STDIN } from "./load.ts";

export type SourceList = readonly string[] | { readonly text: string };

export interface Sources {
  readonly names: readonly string[];
  /** False for a built-in text: nothing can change. */
  readonly canChange: boolean;
  /** Throws a ConfigError when a path cannot be read. */
  read(): SourceText[];
  /** Every path to look at now; a directory's files may come and go. */
  paths(): string[];
  /** All that the configuration is made of, with the files (keys, certificates) that it names, as one text. */
  content(namedFiles: Iterable<string>): string;
}

export function openSources(list: SourceList, readStdin: () => string): Sources {
  // Standard input can be read only once; later looks see the same text.
  let stdin: string | undefined;
  const once = (): string => {
    stdin ??= readStdin();
    return stdin;
  };
  const isText = !Array.isArray(list);
  const names = isText ? ["<default>"] : (list as readonly string[]);
  const read = (): SourceText[] =>
    isText ? [{ file: "<default>", text: (list as { text: string }).text }] : readSources(names, once);
  return {
    names,
    canChange: !isText,
    read,
    paths: () => names.filter((path) => path !== STDIN).flatMap((path) => [path, ...filesOf(path)]),
    content(namedFiles) {
      const written = read().map(({ file, text }) => `${file}\n${text}`);
      return [...written, ...[...namedFiles].map(fileContent)].join("\n");
    },
  };
}

/** What a key file or certificate contains now: a change in it is a change of the configuration. */
function fileContent(path: string): string {
  try {
    return `${path}\n${readFileSync(path, "utf8")}`;
  } catch {
    return `${path} unreadable`;
  }
}
