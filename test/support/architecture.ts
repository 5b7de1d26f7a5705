/**
 * The rules of docs/design section 4 as data and one checker: which folder may import which, who keeps which door,
 * and how a file must look. The checker takes files as texts, so that it can be tried on wrong ones.
 */

export interface SourceFile {
  /** From the project's folder, for example `src/core/errors.ts`. */
  readonly path: string;
  readonly text: string;
}

/** Lower layers first; a folder imports itself and the layers above its own in this list. */
const LAYERS: readonly (readonly string[])[] = [
  ["lib"],
  ["trace"],
  ["cel"],
  ["core"],
  ["identity", "llm", "mcp", "demo"],
  ["policies", "backends"],
  ["pipeline"],
  ["config"],
  ["admin", "kubernetes"],
  ["app"],
  ["bin"],
];

/** gwctl shares words with the gateway, not code; the login check alone loads more, and only when it runs. */
const CLI_MAY_IMPORT = /^(?:lib\/.*|cli\/.*|trace\/(?:events|request-record)\.ts|admin\/paths\.ts)$/;
const CLI_MAY_LOAD_LAZILY = /^(?:config|identity)\//;

interface Door {
  readonly what: string;
  readonly pattern: RegExp;
  readonly keepers: RegExp;
}

const DOORS: readonly Door[] = [
  {
    what: "an HTTP server",
    pattern: /import \{[^}]*\bcreateServer\b[^}]*\} from "node:https?"/,
    keepers: /^src\/(?:pipeline\/listener|admin\/server)\.ts$/,
  },
  {
    what: "child processes",
    pattern: /from "node:child_process"|import\("node:child_process"\)/,
    keepers: /^src\/(?:mcp\/stdio-process|cli\/run-program)\.ts$/,
  },
  { what: "process.env", pattern: /\bprocess\.env\b/, keepers: /^src\/config\/env\.ts$/ },
  {
    what: "the HTTP client library",
    pattern: /from "undici"|import\("undici"\)/,
    keepers: /^src\/lib\/(?:http-client|websocket)\.ts$/,
  },
  {
    what: "time",
    pattern:
      /\bDate\.now\(|\bperformance\.now\(|(?<!socket\.)\bset(?:Timeout|Interval)\(|from "node:timers|\bnew Date\(\)/,
    // The demo server is a program of its own that stands in for somebody else's.
    keepers: /^src\/(?:lib\/clock\.ts|demo\/|cli\/)/,
  },
];

const FORBIDDEN_NAMES = /\/(?:utils?|helpers?|common|types?|manager|service|misc)\.tsx?$/;
const KEBAB = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.test)?\.tsx?$/;

/** Everything that breaks a rule, one line each. */
export function brokenRules(files: readonly SourceFile[]): string[] {
  return [
    ...files.flatMap((file) => [...importRules(file), ...doorRules(file), ...formRules(file)]),
    ...circles(files),
  ];
}

/**
 * Files that import each other, directly or around a corner. Types and lazy imports count: one can neither be read
 * nor be moved without the other. Each circle is told once, as the way round it.
 */
function circles(files: readonly SourceFile[]): string[] {
  const imports = new Map(
    files
      .filter(({ path }) => !isTest(path))
      .map(({ path, text }) => [path, importsOf(path, text).map(({ target }) => target)]),
  );
  const found: string[] = [];
  const done = new Set<string>();
  const way: string[] = [];
  const follow = (path: string): void => {
    const start = way.indexOf(path);
    if (start >= 0) found.push(`a circle of imports: ${[...way.slice(start), path].join(" → ")}`);
    if (start >= 0 || done.has(path)) return;
    way.push(path);
    for (const target of imports.get(path) ?? []) follow(target);
    way.pop();
    done.add(path);
  };
  for (const path of imports.keys()) follow(path);
  return found;
}

function isTest(path: string): boolean {
  return /\.test\.tsx?$/.test(path);
}

function importRules({ path, text }: SourceFile): string[] {
  if (isTest(path)) return [];
  const problems: string[] = [];
  for (const { target, isLazy } of importsOf(path, text)) {
    if (!target.startsWith("src/")) {
      problems.push(`${path}: imports ${target}, which is no part of the gateway`);
      continue;
    }
    const inside = target.slice("src/".length);
    if (!mayImport(folderOf(path), folderOf(target), inside, isLazy))
      problems.push(`${path}: may not import ${inside}${isLazy ? "" : " (the import rule)"}`);
    if (isOtherPolicy(path, target)) problems.push(`${path}: a policy never imports another policy`);
  }
  return problems;
}

function mayImport(from: string, to: string, inside: string, isLazy: boolean): boolean {
  if (from === to) return true;
  if (from === "cli") return CLI_MAY_IMPORT.test(inside) || (isLazy && CLI_MAY_LOAD_LAZILY.test(inside));
  if (to === "cli") return from === "bin";
  const [own, other] = [layerOf(from), layerOf(to)];
  return own >= 0 && other >= 0 && other < own;
}

function isOtherPolicy(path: string, target: string): boolean {
  const own = /^src\/policies\/([^/]+)\//.exec(path)?.[1];
  const other = /^src\/policies\/([^/]+)\//.exec(target)?.[1];
  return own !== undefined && other !== undefined && own !== other;
}

function layerOf(folder: string): number {
  return LAYERS.findIndex((layer) => layer.includes(folder));
}

/** `src/app.ts` is a layer of its own. */
function folderOf(path: string): string {
  const [, folder = ""] = path.split("/");
  return folder.replace(/\.tsx?$/, "");
}

/** Relative imports, resolved; types too, because they couple as well. `isLazy`: nothing is loaded at the start. */
function importsOf(path: string, text: string): { target: string; isLazy: boolean }[] {
  const found: { target: string; isLazy: boolean }[] = [];
  for (const [, type, target] of text.matchAll(/^(?:import|export) (type )?(?:[^"';]* from )?"(\.[^"]+)"/gm))
    found.push({ target: resolve(path, target as string), isLazy: type !== undefined });
  for (const [, target] of text.matchAll(/import\("(\.[^"]+)"\)/g))
    found.push({ target: resolve(path, target as string), isLazy: true });
  return found;
}

function resolve(from: string, relative: string): string {
  const parts = from.split("/").slice(0, -1);
  for (const part of relative.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}

function doorRules({ path, text }: SourceFile): string[] {
  if (isTest(path)) return [];
  const code = withoutComments(text);
  return DOORS.filter(({ pattern, keepers }) => pattern.test(code) && !keepers.test(path)).map(
    ({ what }) => `${path}: opens the door to ${what} that another file keeps`,
  );
}

function formRules({ path, text }: SourceFile): string[] {
  const problems: string[] = [];
  const name = path.split("/").at(-1) ?? "";
  if (FORBIDDEN_NAMES.test(path)) problems.push(`${path}: the name says nothing about what is in it`);
  if (!KEBAB.test(name)) problems.push(`${path}: file names are kebab-case`);
  if (/^export default /m.test(text)) problems.push(`${path}: has a default export`);
  if (!isTest(path) && !/^(?:#!.*\n)?\/\*\*\n(?: \*.*\n)+? \*\/\n/.test(text))
    problems.push(`${path}: has no header comment`);
  return problems;
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*$/gm, "$1");
}
