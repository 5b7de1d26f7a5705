/**
 * A configuration file as data with positions: parsed YAML documents in which every value can be found again by
 * its path. Refuses what is too large, too deep, aliased too often, or has a key twice, before it can cost anything.
 */
import {
  Alias,
  type Document,
  isMap,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseAllDocuments,
  Scalar,
  visit,
} from "yaml";
import { ConfigError, type Position } from "../../core/errors.ts";
import { type Environment, hasMarkCharacters, markPlaceholders, type Placeholder, resolveMarks } from "./env.ts";
import { MALFORMED, syntaxProblems } from "./syntax-problems.ts";

export const MAX_FILE_BYTES = 8 * 1024 * 1024;
const MAX_DEPTH = 64;
const TOO_DEEP = `nested deeper than ${MAX_DEPTH} levels`;
/** Aliases that may be expanded in one file: a handful is convenience, thousands are a bomb. */
const MAX_ALIASES = 100;

/** A file that is no YAML at all would otherwise fill the screen. */
const MAX_PROBLEMS = 100;

export type Path = readonly (string | number)[];

export interface SourceDocument {
  readonly file: string;
  readonly value: unknown;
  /** Where the value (or, with `key`, its key) stands; the nearest parent if it does not exist. Undefined outside of files. */
  position(path: Path, at?: "key" | "value"): Position | undefined;
  /** What the environment made of the value there, before YAML gave it a type; undefined if it names no variable. */
  fromEnvironment(path: Path): EnvironmentText | undefined;
  /** Values with variables that are not set, where that is allowed. */
  readonly unset?: readonly UnsetValue[];
  /** Of a cluster: it cannot touch this machine, and reads only what was granted to it. */
  readonly confined?: { grant(reference: string, text: string): string; readText(name: string): string };
}

export interface UnsetValue {
  readonly path: Path;
  readonly names: readonly string[];
}

export interface EnvironmentText {
  readonly text: string;
  readonly names: readonly string[];
}

export interface ParsedSource {
  readonly documents: readonly SourceDocument[];
  readonly problems: readonly ConfigError[];
}

export interface SourceOptions {
  /** Variables that are not set are no problem: a placeholder stands for them. For validation only. */
  readonly allowUnset?: boolean;
}

export function parseSource(
  file: string,
  text: string,
  environment: Environment,
  options: SourceOptions = {},
): ParsedSource {
  const whole = (message: string): ParsedSource => ({
    documents: [],
    problems: [new ConfigError({ file, line: 1, column: 1 }, "", message)],
  });
  if (Buffer.byteLength(text) > MAX_FILE_BYTES) return whole("the file is larger than 8 MiB");
  if (hasMarkCharacters(text)) return whole("the file contains private-use characters (U+E000 to U+E002)");
  const tooDeep = firstTooDeepLine(text);
  if (tooDeep !== undefined)
    return {
      documents: [],
      problems: [new ConfigError({ file, line: tooDeep, column: 1 }, "", TOO_DEEP)],
    };

  const lines = new LineCounter();
  const marked = markPlaceholders(text);
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { file, line, column: col };
  };
  const problems: ConfigError[] = [];
  const documents: SourceDocument[] = [];
  for (const document of parseYaml(marked.text, lines)) {
    if (document === "too deep") return whole(TOO_DEEP);
    // A tag that nobody knows is only a warning to the library, which then takes the value for an empty one.
    const errors = [...document.errors, ...document.warnings.filter(({ code }) => code === "TAG_RESOLVE_FAILED")];
    if (errors.length > 0) {
      problems.push(...syntaxProblems(errors, marked.text, at, TOO_DEEP));
      continue;
    }
    const texts = new Map<unknown, EnvironmentText>();
    const unset: UnsetValue[] | undefined = options.allowUnset ? [] : undefined;
    const found = resolveDocument(document, marked.placeholders, environment, at, texts, unset);
    problems.push(...found);
    if (found.length > 0) continue;
    try {
      documents.push({ ...sourceDocument(file, document, at, texts), ...(unset ? { unset } : {}) });
    } catch (error) {
      // Aliases of aliases that would grow without end, or an alias inside of what it stands for.
      const reason = `the aliases cannot be expanded: ${aliasMessage(error as Error)}`;
      problems.push(new ConfigError(at(startOf(document.contents)), "", reason));
    }
  }
  return { documents, problems: problems.sort(byPlace).slice(0, MAX_PROBLEMS) };
}

/** In the order of the file: whoever mends it goes from the top down. */
export function byPlace({ position: a }: ConfigError, { position: b }: ConfigError): number {
  return a && b ? a.line - b.line || a.column - b.column : 0;
}

function parseYaml(text: string, lineCounter: LineCounter): readonly (Document.Parsed | "too deep")[] {
  try {
    const parsed = parseAllDocuments(text, {
      lineCounter,
      prettyErrors: false,
      // Checked by ourselves: the library compares every key with every other.
      uniqueKeys: false,
      merge: false,
      version: "1.2",
      stringKeys: true,
    });
    return Array.isArray(parsed) ? parsed : [];
  } catch (error) {
    // The parser recurses: a document that exhausts the stack is refused, it does not end the process.
    if (error instanceof RangeError) return ["too deep"];
    throw error;
  }
}

/** Resolves placeholders and checks the shape; returns what is wrong. */
function resolveDocument(
  document: Document.Parsed,
  placeholders: readonly Placeholder[],
  environment: Environment,
  at: (offset: number) => Position,
  texts: Map<unknown, EnvironmentText>,
  unset: UnsetValue[] | undefined,
): ConfigError[] {
  const problems: ConfigError[] = [];
  let aliases = 0;
  visit(document, {
    Map(_key, node, path) {
      const name = (pair: Pair): string => pathText([...pathOf(path, node), keyOf(pair)]);
      for (const pair of repeatedKeys(node.items))
        problems.push(
          new ConfigError(at(startOf(pair.key)), name(pair), "duplicate key: it is given twice in the same object"),
        );
      // Objects cannot hold it like another name: it would be lost without a word.
      for (const pair of node.items.filter((item) => keyOf(item) === "__proto__"))
        problems.push(new ConfigError(at(startOf(pair.key)), name(pair), "this name cannot be used"));
    },
    Alias(_key, node) {
      aliases += 1;
      if (aliases <= MAX_ALIASES) return undefined;
      problems.push(new ConfigError(at(startOf(node)), "", `more than ${MAX_ALIASES} aliases`));
      return visit.BREAK;
    },
    Scalar(_key, node, path) {
      if (path.length > MAX_DEPTH * 2) {
        problems.push(new ConfigError(at(startOf(node)), "", TOO_DEEP));
        return visit.BREAK;
      }
      const place = (): Path => pathOf(path, node);
      const resolved = resolveScalar(node, place, document, placeholders, environment, at, problems, unset);
      if (resolved) texts.set(node, resolved);
      return undefined;
    },
  });
  return problems;
}

function resolveScalar(
  node: Scalar,
  /** Costly in a long list: asked only for a message. */
  path: () => Path,
  document: Document.Parsed,
  placeholders: readonly Placeholder[],
  environment: Environment,
  at: (offset: number) => Position,
  problems: ConfigError[],
  unset: UnsetValue[] | undefined,
): EnvironmentText | undefined {
  if (typeof node.value !== "string") return undefined;
  if (node.value.includes("${")) {
    problems.push(new ConfigError(at(startOf(node)), pathText(path()), MALFORMED));
    return undefined;
  }
  const resolved = resolveMarks(node.value, placeholders, environment, unset !== undefined);
  if (!resolved.changed) return undefined;
  if (unset !== undefined && resolved.missing.length > 0) unset.push({ path: path(), names: resolved.missing });
  else
    for (const name of resolved.missing)
      problems.push(new ConfigError(at(startOf(node)), pathText(path()), `environment variable not found: ${name}`));
  // A plain scalar gets its type from what it says now: `port: ${PORT}` is a number.
  node.value = node.type === Scalar.PLAIN ? retyped(resolved.text, document) : resolved.text;
  return resolved;
}

/** The value of a plain scalar by the rules of the YAML core schema. */
function retyped(text: string, document: Document.Parsed): unknown {
  for (const tag of document.schema.tags) {
    if (tag.collection === undefined && tag.default === true && tag.test?.test(text)) {
      const value = tag.resolve(text, () => undefined, document.options as never);
      return isScalar(value) ? value.value : value;
    }
  }
  return text;
}

function sourceDocument(
  file: string,
  document: Document.Parsed,
  at: (offset: number) => Position,
  texts: ReadonlyMap<unknown, EnvironmentText>,
): SourceDocument {
  const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES });
  refuseCycles(value);

  /** The node at the path and where it starts; of the nearest parent if there is none. */
  function find(path: Path, what: "key" | "value"): { node: unknown; start: number } {
    let node: unknown = document.contents;
    let start = startOf(node);
    for (const key of path) {
      if (node instanceof Alias) node = node.resolve(document);
      if (isMap(node)) {
        const pair = node.items.find((item) => keyOf(item) === String(key));
        if (!pair) return { node: undefined, start };
        start = what === "key" ? startOf(pair.key) : startOf(pair.value ?? pair.key, startOf(pair.key));
        node = pair.value;
      } else if (isSeq(node)) {
        node = node.items[Number(key)];
        if (node === undefined || node === null) return { node: undefined, start };
        start = startOf(node, start);
      } else return { node: undefined, start };
    }
    return { node: node instanceof Alias ? node.resolve(document) : node, start };
  }

  return {
    file,
    value,
    position: (path, what = "value") => at(find(path, what).start),
    fromEnvironment: (path) => texts.get(find(path, "value").node),
  };
}

/** An alias inside of what it stands for would make every walk over the value endless. */
function refuseCycles(value: unknown, above: ReadonlySet<unknown> = new Set()): void {
  if (typeof value !== "object" || value === null) return;
  if (above.has(value)) throw new Error("one stands inside of what it repeats");
  const path = new Set(above).add(value);
  for (const inner of Object.values(value)) refuseCycles(inner, path);
}

/** Every pair whose key stands earlier in the same object. */
function repeatedKeys(pairs: readonly Pair[]): Pair[] {
  const seen = new Set<string>();
  return pairs.filter((pair) => {
    const key = keyOf(pair);
    return seen.has(key) || !seen.add(key);
  });
}

/** `routes[0].backends`: how a place in the configuration is written in messages. */
export function pathText(path: Path): string {
  let text = "";
  for (const key of path) text += typeof key === "number" ? `[${key}]` : `${text === "" ? "" : "."}${shownName(key)}`;
  return text;
}

/** `{ key:abc }` and `{ key=abc }` are names to YAML: what is long behind the sign was meant as a value, perhaps a secret. */
function shownName(key: string): string {
  return key.replace(/^([\w.-]+[:=]).{8,}$/s, "$1…");
}

/** The path of a scalar from the nodes above it, as the visitor reports them. */
function pathOf(above: readonly unknown[], node: Node): Path {
  const path: (string | number)[] = [];
  for (const [i, parent] of above.entries()) {
    const child = above[i + 1] ?? node;
    if (isSeq(parent)) path.push(parent.items.indexOf(child as never));
    else if (isPair(parent)) path.push(keyOf(parent));
  }
  return path;
}

function keyOf(pair: Pair): string {
  return isScalar(pair.key) ? String(pair.key.value) : "";
}

function startOf(node: unknown, otherwise = 0): number {
  return (node as Node | null | undefined)?.range?.[0] ?? otherwise;
}

/** The library names the alias; where a value that begins with `*` was not quoted, that is the value. */
function aliasMessage(error: Error): string {
  return error instanceof ReferenceError
    ? "one has no anchor before it; quote values that begin with *"
    : error.message;
}

/**
 * A cheap look before the parser: brackets nested beyond the limit would make it recurse. Strings and comments
 * are not told apart, so the limit counts generously; indentation is bounded the same way.
 */
function firstTooDeepLine(text: string): number | undefined {
  const limit = MAX_DEPTH * 4;
  let depth = 0;
  let line = 1;
  let dashes = 0;
  const indents: number[] = [];
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 10) {
      line += 1;
      dashes = 0;
      let next = i + 1;
      while (text.charCodeAt(next) === 32) next += 1;
      const indent = next - i - 1;
      while ((indents.at(-1) ?? -1) >= indent) indents.pop();
      indents.push(indent);
      if (indents.length > limit) return line;
    } else if (code === 91 || code === 123) {
      depth += 1;
      if (depth > limit) return line;
    } else if (code === 93 || code === 125) depth = Math.max(0, depth - 1);
    else if (code === 45 && text.charCodeAt(i + 1) === 32) {
      dashes += 1;
      if (dashes > limit) return line;
    }
  }
  return undefined;
}
