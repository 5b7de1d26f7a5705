/**
 * A configuration file as data with positions: parsed YAML documents in which every value can be found again by
 * its path. Refuses what is too large, too deep, aliased too often, or has a key twice, before it can cost anything.
 */
import { Alias, type Document, isMap, isSeq, LineCounter, parseAllDocuments } from "yaml";
import { ConfigError, type Position } from "../../core/config-error.ts";
import { type Environment, hasMarkCharacters, markPlaceholders } from "./env.ts";
import { type EnvironmentText, MAX_ALIASES, resolveDocument, type UnsetValue } from "./resolve-document.ts";
import { syntaxProblems } from "./syntax-problems.ts";
import { firstTooDeepLine, TOO_DEEP } from "./too-deep.ts";
import { keyOf, type Path, startOf } from "./value-path.ts";
import { type VariableNames, withoutVariableNames } from "./variable-names.ts";

export const MAX_FILE_BYTES = 8 * 1024 * 1024;

/** A file that is no YAML at all would otherwise fill the screen. */
const MAX_PROBLEMS = 100;

export interface SourceDocument {
  readonly file: string;
  readonly value: unknown;
  /** Where the value (or, with `key`, its key) stands; the nearest parent if it does not exist. Undefined outside of files. */
  position(path: Path, at?: "key" | "value"): Position | undefined;
  /** What the environment made of the value there, before YAML gave it a type; undefined if it names no variable. */
  fromEnvironment(path: Path): EnvironmentText | undefined;
  /** Field names that variables made, and how they are written: messages must not quote what a variable holds. */
  readonly variableNames?: VariableNames;
  /** Values with variables that are not set, where that is allowed. */
  readonly unset?: readonly UnsetValue[];
  /** Of a cluster: it cannot touch this machine, and reads only what was granted to it. */
  readonly confined?: { grant(reference: string, text: string): string; readText(name: string): string };
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
    const names = new Map<string, string>();
    const found = resolveDocument(document, marked.placeholders, environment, at, texts, names, unset);
    problems.push(...withoutVariableNames(found, names));
    if (found.length > 0) continue;
    try {
      documents.push({
        ...sourceDocument(file, document, at, texts),
        ...(names.size > 0 ? { variableNames: names } : {}),
        ...(unset ? { unset } : {}),
      });
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
    position(path, what = "value") {
      const { node, start } = find(path, what);
      const environment = texts.get(node);
      // Not a member that is printed with the others.
      return environment === undefined
        ? at(start)
        : Object.defineProperty(at(start), "variables", { value: environment.values });
    },
    fromEnvironment: (path) => texts.get(find(path, "value").node),
  };
}

/** An alias inside of what it stands for would make every walk over the value endless. */
function refuseCycles(value: unknown, above: ReadonlySet<unknown> = new Set()): void {
  if (typeof value !== "object" || value === null) return;
  if (above.has(value)) throw new Error("an alias is inside its own anchor");
  const path = new Set(above).add(value);
  for (const inner of Object.values(value)) refuseCycles(inner, path);
}

/** The library names the alias; where a value that begins with `*` was not quoted, that is the value. */
function aliasMessage(error: Error): string {
  return error instanceof ReferenceError
    ? "one has no anchor before it; quote values that begin with *"
    : error.message;
}
