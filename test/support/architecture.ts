/**
 * The rules of ARCHITECTURE.md as data and one checker: which folder and which room may import which, how large a folder
 * may be, who keeps which door, and how a file must look. The checker takes files as texts, so that it can be tried on
 * wrong ones.
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
  ["identity", "llm", "mcp", "telemetry", "demo"],
  ["policies", "backends"],
  ["pipeline"],
  ["config"],
  ["admin", "kubernetes"],
  ["app"],
  ["bin"],
];

/**
 * The rooms of a large folder, lower ones first: a room imports itself and the rooms before it. Files that stand in the
 * folder itself put its rooms together: they import every room, and no room imports them.
 */
export const ROOMS: Readonly<Record<string, readonly string[]>> = {
  lib: ["text", "process", "log", "store", "http", "http1", "http2", "client", "kubeconfig"],
  cel: ["syntax", "values", "functions", "analysis"],
  identity: ["tokens", "providers", "keys", "passwords", "access", "login"],
  llm: ["wire", "usage", "dialects", "budgets", "form", "clients", "upstreams", "translate", "providers", "guards"],
  mcp: [
    "wire",
    "replicas",
    "transports",
    "openapi",
    "servers",
    "eras",
    "tools",
    "many",
    "logins",
    "streams",
    "sessions",
    "clients",
  ],
  "backends/ai": ["credentials", "models", "requests", "answers", "cache"],
  pipeline: ["records", "route", "phases", "listen", "dry-run"],
  config: ["text", "schema", "load", "checks", "cluster", "resources", "crds", "compile"],
  admin: ["server", "endpoints", "change", "merge", "ui"],
  kubernetes: ["client", "cache", "status", "serve", "control", "follow"],
  cli: ["terminal", "instance", "cluster", "trace", "import", "views", "commands"],
};

/** gwctl shares words with the gateway, not code; the login check, imports and the lock file load more, and only when they run. */
const CLI_MAY_IMPORT = /^(?:lib\/.*|cli\/.*|trace\/(?:events|request-record)\.ts|admin\/server\/paths\.ts)$/;
const CLI_MAY_LOAD_LAZILY = /^(?:config|identity|mcp\/tools)\//;

interface Door {
  readonly what: string;
  readonly pattern: RegExp;
  readonly keepers: RegExp;
}

const HOP_BY_HOP = '"(?:connection|http2-settings|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade)"';
const LIST_ITEMS = ',\\s*(?:"[\\w-]+",\\s*)*';

const DOORS: readonly Door[] = [
  {
    what: "the table of hop-by-hop headers",
    pattern: new RegExp(`${HOP_BY_HOP}${LIST_ITEMS}${HOP_BY_HOP}${LIST_ITEMS}${HOP_BY_HOP}|"proxy-connection"`),
    keepers: /^src\/lib\/http\/header-rules\.ts$/,
  },
  {
    what: "an HTTP server",
    pattern: /import \{[^}]*\bcreateServer\b[^}]*\} from "node:https?"/,
    keepers: /^src\/(?:admin\/server\/server|kubernetes\/serve\/snapshot-server)\.ts$/,
  },
  {
    what: "a listening socket",
    pattern: /import \{[^}]*\bcreateServer\b[^}]*\} from "node:(?:net|tls)"/,
    keepers: /^src\/(?:pipeline\/listen\/(?:listener|tls-door)|app\/threads\/port-probe|cli\/.*)\.ts$/,
  },
  {
    what: "child processes",
    pattern: /from "node:child_process"|import\("node:child_process"\)/,
    keepers:
      /^src\/(?:app\/(?:upgrade\/successor|change\/rehearsals)|mcp\/transports\/child-process|lib\/process\/run-program)\.ts$/,
  },
  { what: "process.env", pattern: /\bprocess\.env\b/, keepers: /^src\/config\/text\/env\.ts$/ },
  {
    what: "the HTTP client library",
    pattern: /from "undici"|import\("undici"\)/,
    keepers: /^src\/lib\/http\/websocket\.ts$/,
  },
  {
    what: "time",
    pattern:
      /\bDate\.now\(|\bperformance\.now\(|(?<!socket\.)\bset(?:Timeout|Interval)\(|from "node:timers|\bnew Date\(\)/,
    // The demo server is a program of its own that stands in for somebody else's.
    keepers: /^src\/(?:lib\/process\/clock\.ts|demo\/|cli\/)/,
  },
];

/** A test that waits for time is slow on a quick machine and wrong on a busy one. */
const SLEEP = /new Promise(?:<[^>]*>)?\(\(?\w+\)? =>\s*(?:void )?setTimeout\(\w+,|"(?:node:)?timers\/promises"/;
/** What looks again and again, servers that are slow on purpose, and the wrong code that the rule is tried on. */
const MAY_SLEEP = /^test\/(?:architecture\.test|support\/(?:eventually|mcp\/odd-lines|mcp\/conformance-features))\.ts$/;

const FORBIDDEN_NAMES = /\/(?:utils?|helpers?|common|types?|manager|service|misc)\.tsx?$/;
const KEBAB = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.test)?\.tsx?$/;

/** Everything that breaks a rule, one line each. */
export function brokenRules(files: readonly SourceFile[]): string[] {
  return [
    ...files.flatMap((file) => [...importRules(file), ...doorRules(file), ...formRules(file)]),
    ...circles(files),
  ];
}

/** Tests, and what they share, that sleep instead of waiting for an event; one line each. */
export function sleepingTests(files: readonly SourceFile[]): string[] {
  return files
    .filter(({ path, text }) => SLEEP.test(withoutComments(text)) && !MAY_SLEEP.test(path))
    .map(({ path }) => `${path}: sleeps; await an event, use eventually() or untilStill(), or advance a fake clock`);
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
    if (isUpwards(path, target)) problems.push(`${path}: its room may not import ${inside} (the order of rooms)`);
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

/** Within one folder, into a room above the own one, or into what puts the rooms together. */
function isUpwards(path: string, target: string): boolean {
  return Object.keys(ROOMS).some((folder) => {
    const [own, other] = [roomOf(folder, path), roomOf(folder, target)];
    return own !== undefined && other !== undefined && other > own;
  });
}

/** The room's place in the order of its folder; the files of the folder itself come last. Undefined outside of it. */
function roomOf(folder: string, path: string): number | undefined {
  const prefix = `src/${folder}/`;
  if (!path.startsWith(prefix)) return undefined;
  const [room = "", file] = path.slice(prefix.length).split("/");
  const rooms = ROOMS[folder] ?? [];
  return file === undefined ? rooms.length : rooms.indexOf(room);
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
  for (const folder of Object.keys(ROOMS))
    if (roomOf(folder, path) === -1) problems.push(`${path}: is in no room of ${folder}`);
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
