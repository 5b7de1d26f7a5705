/**
 * The rules of ARCHITECTURE.md as data, and one checker: allowed imports, owners of I/O modules, and the form of
 * files. The checker takes files as strings, so that tests can check it with invalid code.
 */

export interface SourceFile {
  /** Relative to the project folder, for example `src/core/errors.ts`. */
  readonly path: string;
  readonly text: string;
}

/**
 * Lower layers first; a folder imports itself and the layers before its own in this list. A subfolder that lower layers
 * import is in the list, too.
 */
export const LAYERS: readonly (readonly string[])[] = [
  ["base"],
  ["json"],
  ["record/log", "record/trace"],
  ["store", "http"],
  ["record/history"],
  ["cel"],
  ["core"],
  ["identity", "policy-parts"],
  ["llm", "demo"],
  ["mcp", "record"],
  ["backends"],
  ["policies"],
  ["pipeline"],
  ["config"],
  ["kubernetes", "admin"],
  ["app"],
  ["bin"],
];

/**
 * The subfolders of a large folder, lower ones first: each imports itself and those before it. "." is the folder's own
 * files; without it they come last, import every subfolder, and no subfolder imports them.
 */
export const SUBFOLDERS: Readonly<Record<string, readonly string[]>> = {
  record: ["log", "trace", "history", ".", "telemetry"],
  http: [".", "h1", "h2", "client"],
  cel: ["syntax", "values", "functions", "analysis"],
  identity: ["oauth", "tokens", "cloud", "providers", "keys", "passwords", "access", "login"],
  llm: ["usage", "request", "budgets", "dialects", "guards", "models"],
  mcp: [
    "protocol",
    "replicas",
    "transports",
    "openapi",
    "server-side",
    "tools",
    "aggregation",
    "logins",
    "session",
    "client-side",
  ],
  pipeline: ["route", "phases", "listen", "dry-run"],
  config: ["text", "import", "schema", "load", "checks", "documents", "compile"],
  admin: ["server", "endpoints", "merge", "ui"],
  cli: ["terminal", "instance", "cluster", "trace", "views", "commands"],
};

/** gwctl shares types and paths with the gateway, not behavior; validation, the login check, imports and the lock file load more, only when they run. */
const CLI_MAY_IMPORT =
  /^(?:(?:base|json|http|cli)\/.*|record\/log\/logger\.ts|record\/trace\/(?:explain|record|traffic-numbers)\.ts|kubernetes\/kubeconfig\.ts|admin\/server\/paths\.ts)$/;
const CLI_MAY_LOAD_LAZILY = /^(?:(?:config|identity|mcp\/tools)\/|app\/validate\.ts$)/;

/** An I/O module or a security table, and the only files that may use it. */
interface Owned {
  readonly what: string;
  readonly pattern: RegExp;
  readonly owners: RegExp;
}

const HOP_BY_HOP = '"(?:connection|http2-settings|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade)"';
const LIST_ITEMS = ',\\s*(?:"[\\w-]+",\\s*)*';

const OWNED: readonly Owned[] = [
  {
    what: "the table of hop-by-hop headers",
    pattern: new RegExp(`${HOP_BY_HOP}${LIST_ITEMS}${HOP_BY_HOP}${LIST_ITEMS}${HOP_BY_HOP}|"proxy-connection"`),
    owners: /^src\/http\/header-rules\.ts$/,
  },
  {
    what: "an HTTP server",
    pattern: /import \{[^}]*\bcreateServer\b[^}]*\} from "node:https?"/,
    owners: /^src\/(?:admin\/server\/server|kubernetes\/snapshot-server)\.ts$/,
  },
  {
    what: "a listening socket",
    pattern: /import \{[^}]*\bcreateServer\b[^}]*\} from "node:(?:net|tls)"/,
    owners:
      /^src\/(?:pipeline\/listen\/(?:listener|tls-acceptor|tcp\/tcp-listener)|app\/threads\/thread-pool|cli\/.*)\.ts$/,
  },
  {
    what: "child processes",
    pattern: /from "node:child_process"|import\("node:child_process"\)/,
    owners:
      /^src\/(?:app\/(?:upgrade\/successor|rehearsal\/rehearsals)|mcp\/transports\/stdio-transport|base\/run-program)\.ts$/,
  },
  {
    what: "an outgoing connection",
    pattern:
      /import \{[^}]*(?<!type )\b(?:connect|createConnection|Socket)\b[^}]*\} from "node:(?:net|tls|http2)"|import (?:\* as )?\w+ from "node:(?:net|tls|http2|https?|dgram)"|(?:import|require)\("node:(?:net|tls|http2|https?|dgram)"\)/,
    // The admin server probes its own unix socket, and `socket-reads.ts` inspects an unconnected socket.
    owners:
      /^src\/(?:http\/(?:h1\/(?:connection|socket-reads)|h2\/http2-pool)|pipeline\/listen\/tcp\/tcp-listener|admin\/server\/server)\.ts$/,
  },
  {
    what: "a gRPC channel",
    pattern: /\bnew grpc\.(?:Client|Channel)\(|\bcredentials\.create(?:Insecure|Ssl)\(/,
    owners: /^src\/(?:http\/client\/grpc-(?:client|credentials)|policies\/rate-limit\/rls-client)\.ts$/,
  },
  {
    what: "a request with Node's HTTP client",
    pattern: /import \{[^}]*(?<!type )\b(?:request|get|Agent)\b[^}]*\} from "node:https?"/,
    // These commands call a gateway that the user names.
    owners: /^src\/(?:bin\/(?:health|rehearse)|cli\/.*)\.ts$/,
  },
  {
    what: "a client library that connects to an address of the startup settings",
    pattern: /(?:from |import\(|require\()"(?:ioredis|pg|@opentelemetry\/(?:exporter|otlp)[^"]*)"/,
    owners:
      /^src\/(?:store\/redis-(?:bus|store)|record\/(?:history\/postgres-engine|telemetry\/(?:otlp-export|span-encoder)))\.ts$/,
  },
  {
    what: "the JSON parser",
    // The linter also reports other ways to reach it (scripts/lint/json-reader.grit).
    pattern: /\bJSON\.parse\b/,
    owners: /^src\/json\/(?:read-json|parse-in-steps|syntax)\.ts$/,
  },
  {
    what: "a reading of host names, origins, or IP addresses",
    pattern:
      /\b(?:host|hostname|authority|origin)\??\.(?:toLowerCase|lastIndexOf)\(|"::ffff:|\/\^::ffff:|\.replace\(\/\^?\\\[|new SocketAddress\(/i,
    // A forward proxy rejects other spellings than the canonical one.
    owners: /^src\/http\/(?:host|egress-addresses)\.ts$/,
  },
  {
    what: "the memory of the process",
    pattern: /\bprocess\.memoryUsage\b/,
    owners: /^src\/base\/process-memory\.ts$/,
  },
  { what: "process.env", pattern: /\bprocess\.env\b/, owners: /^src\/config\/text\/env\.ts$/ },
  {
    what: "the HTTP client library",
    pattern: /from "undici"|import\("undici"\)/,
    owners: /^src\/http\/websocket\.ts$/,
  },
  {
    what: "a side table of requests (`exchange.setState` keeps data of one request)",
    pattern: /\b(?:Weak)?(?:Map|Set)<\s*(?:Exchange|GatewayRequest|RequestAttributes|LlmAttributes|LlmCall)\b/,
    owners: /^$/,
  },
  {
    what: "a standard stream",
    pattern: /\bprocess\.std(?:out|err)\.write\(|\bwriteSync\([12],|\bconsole\.(?:log|info|warn|error)\(/,
    // Everything that is printed passes `escapeOutput`. The demo server speaks a protocol on its standard output.
    owners: /^src\/(?:base\/print|cli\/terminal\/terminal|cli\/trace\/trace-screen|demo\/mcp-server)\.tsx?$/,
  },
  {
    what: "time",
    pattern:
      /\bDate\.now\(|\bperformance\.now\(|(?<!socket\.)\bset(?:Timeout|Interval)\(|from "node:timers|\bnew Date\(\)/,
    // The demo server is a separate program.
    owners: /^src\/(?:base\/clock\.ts|demo\/|cli\/)/,
  },
];

/** Opens sockets for addresses of the configuration, and must therefore require an `EgressGuard`. */
const GUARDED =
  /^src\/(?:http\/(?:h1\/connection|client\/(?:fetcher|grpc-(?:client|credentials)))|pipeline\/listen\/tcp\/tcp-listener|policies\/rate-limit\/rls-client)\.ts$/;

/** A test that sleeps is slow on a fast machine and fails on a busy one. */
const SLEEP = /new Promise(?:<[^>]*>)?\(\(?\w+\)? =>\s*(?:void )?setTimeout\(\w+,|"(?:node:)?timers\/promises"/;
/** Polling helpers, servers that are slow on purpose, simulated time, and the wrong code that the rule is tested with. */
const MAY_SLEEP =
  /^test\/(?:architecture\.test|simulation\/(?:isolate|probe)|support\/(?:eventually|mcp\/odd-lines|mcp\/conformance-features))\.ts$/;

const FORBIDDEN_NAMES = /\/(?:utils?|helpers?|common|types?|manager|service|misc)\.tsx?$/;
const KEBAB = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.test)?\.tsx?$/;

/** All violations, one line each. */
export function brokenRules(files: readonly SourceFile[]): string[] {
  return [
    ...files.flatMap((file) => [...importRules(file), ...ownerRules(file), ...formRules(file)]),
    ...importCycles(files),
  ];
}

/** Tests and test support that sleep instead of waiting for an event, one line each. */
const REPEATED_LINES = 10;

/**
 * Finds runs of ten lines of code that occur twice. Imports, comments, blank lines and lines of punctuation do not
 * count.
 */
export function repeatedCode(files: readonly SourceFile[]): string[] {
  const places = new Map<string, string>();
  const found: string[] = [];
  for (const { path, text } of files) {
    const lines = codeLines(text);
    let lastReported = -REPEATED_LINES;
    for (let i = 0; i + REPEATED_LINES <= lines.length; i++) {
      const window = lines.slice(i, i + REPEATED_LINES);
      const key = window.map((line) => line.code).join("\n");
      const place = `${path}:${window[0]?.number}`;
      const earlier = places.get(key);
      if (earlier === undefined) places.set(key, place);
      else if (i >= lastReported + REPEATED_LINES) {
        found.push(`${place} repeats ${earlier}`);
        lastReported = i;
      }
    }
  }
  return found;
}

function codeLines(text: string): { readonly code: string; readonly number: number }[] {
  const blank = (match: string): string => match.replace(/[^\n]/g, "");
  return text
    .replace(/^(?:import|export) (?:type )?(?:[^"';]* from )?"[^"]+";$/gm, blank)
    .replace(/^[ \t]*\/\*[\s\S]*?\*\//gm, blank)
    .replace(/^[ \t]*\/\/.*$/gm, blank)
    .split("\n")
    .map((line, i) => ({ code: line.trim(), number: i + 1 }))
    .filter(({ code }) => /\w/.test(code));
}

export function sleepingTests(files: readonly SourceFile[]): string[] {
  return files
    .filter(({ path, text }) => SLEEP.test(withoutComments(text)) && !MAY_SLEEP.test(path))
    .map(({ path }) => `${path}: sleeps; await an event, use eventually() or untilStill(), or advance a fake clock`);
}

/**
 * Files that import each other, directly or through others. Types and lazy imports count, because such files can neither
 * be read nor moved alone. Each cycle is reported once, with its path.
 */
function importCycles(files: readonly SourceFile[]): string[] {
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
    if (start >= 0) found.push(`an import cycle: ${[...way.slice(start), path].join(" → ")}`);
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
      problems.push(`${path}: imports ${target}, which is not part of the gateway`);
      continue;
    }
    const inside = target.slice("src/".length);
    if (!mayImport(folderOf(path), folderOf(target), inside, isLazy))
      problems.push(`${path}: may not import ${inside}${isLazy ? "" : " (the import rule)"}`);
    if (isUpwards(path, target))
      problems.push(`${path}: its subfolder may not import ${inside} (the order of subfolders)`);
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

/** Within one folder: an import of a higher subfolder, or of the folder's own files. */
function isUpwards(path: string, target: string): boolean {
  return Object.keys(SUBFOLDERS).some((folder) => {
    const [own, other] = [subfolderRank(folder, path), subfolderRank(folder, target)];
    return own !== undefined && other !== undefined && other > own;
  });
}

/** The subfolder's rank in its folder, -1 if it is not listed, undefined for paths outside the folder. */
function subfolderRank(folder: string, path: string): number | undefined {
  const prefix = `src/${folder}/`;
  if (!path.startsWith(prefix)) return undefined;
  const [first = "", file] = path.slice(prefix.length).split("/");
  const order = SUBFOLDERS[folder] ?? [];
  if (file !== undefined) return order.indexOf(first);
  return order.includes(".") ? order.indexOf(".") : order.length;
}

function isOtherPolicy(path: string, target: string): boolean {
  const own = /^src\/policies\/([^/]+)\//.exec(path)?.[1];
  const other = /^src\/policies\/([^/]+)\//.exec(target)?.[1];
  return own !== undefined && other !== undefined && own !== other;
}

function layerOf(folder: string): number {
  return LAYERS.findIndex((layer) => layer.includes(folder));
}

/** A subfolder can have a layer of its own. */
function folderOf(path: string): string {
  const [, folder = "", subfolder = ""] = path.split("/");
  const nested = `${folder}/${subfolder}`;
  return layerOf(nested) >= 0 ? nested : folder;
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

function ownerRules({ path, text }: SourceFile): string[] {
  if (isTest(path)) return [];
  const code = withoutComments(text);
  const broken = OWNED.filter(({ pattern, owners }) => pattern.test(code) && !owners.test(path)).map(
    ({ what }) => `${path}: uses ${what}, which another file owns`,
  );
  // The type of an HTTP target contains the guard.
  const isUnguarded = GUARDED.test(path) && !/\b(?:EgressGuard|HttpTarget|egress)\b/.test(code);
  return isUnguarded ? [...broken, `${path}: opens connections without an EgressGuard`] : broken;
}

function formRules({ path, text }: SourceFile): string[] {
  const problems: string[] = [];
  for (const folder of Object.keys(SUBFOLDERS))
    if (subfolderRank(folder, path) === -1) problems.push(`${path}: is in no listed subfolder of ${folder}`);
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
