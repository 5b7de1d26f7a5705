/**
 * Parses a configuration file into YAML documents with the position of each value, and replaces `${VAR}` in values and
 * names.
 */
import {
  Alias,
  type Document,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  Scalar,
  visit,
  type YAMLError,
  type YAMLMap,
} from "yaml";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { expandedValue, firstTooDeepLine, MAX_ALIASES, readYamlInSteps } from "../../base/read-yaml.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { ConfigError, type Position } from "../../core/config-error.ts";
import type { VariableValue } from "../../record/trace/redact.ts";
import {
  type Environment,
  hasMarkCharacters,
  markPlaceholders,
  type Placeholder,
  resolveMarks,
  type VariableNames,
  withoutVariableNames,
} from "./env.ts";
import { keyOf, type Path, pathOf, pathText, startOf } from "./value-path.ts";

export const CONFIGURATION = peerInput("file/configuration");
/** The start of the message about a variable that is not set. */
export const MISSING_VARIABLE = "environment variable not found";

/** Limits the time of the parser. */
const MAX_LINES = 200_000;
const MAX_DOCUMENTS = 10_000;

/** Limits the output for a file that is not YAML. */
const MAX_PROBLEMS = 100;

export interface SourceDocument {
  readonly file: string;
  readonly value: unknown;
  /**
   * Returns the position of the value, of its key (`key`), or of the nearest parent. Returns undefined for a document
   * of a cluster.
   */
  position(path: Path, at?: "key" | "value"): Position | undefined;
  /**
   * Returns the string with resolved variables, before it was converted to a YAML type, or undefined if the value has
   * no variables.
   */
  fromEnvironment(path: Path): EnvironmentText | undefined;
  /**
   * Maps field names that contain variables to their source, because messages must not quote the value of a variable.
   */
  readonly variableNames?: VariableNames;
  readonly unset?: readonly UnsetValue[];
  /** Set for a document of a cluster. Such a document cannot access this machine and reads only granted objects. */
  readonly confined?: { grant(reference: string, text: string): string; readText(name: string): string };
}

export interface ParsedSource {
  readonly documents: readonly SourceDocument[];
  readonly problems: readonly ConfigError[];
}

export interface SourceOptions {
  readonly allowUnset?: boolean;
}

export function* parseSource(
  file: string,
  text: string,
  environment: Environment,
  options: SourceOptions = {},
): Steps<ParsedSource> {
  const whole = (message: string): ParsedSource => ({
    documents: [],
    problems: [new ConfigError({ file, line: 1, column: 1 }, "", message)],
  });
  if (Buffer.byteLength(text) > CONFIGURATION.maxBytes) return whole("the file is larger than 8 MiB");
  if (countLines(text) > MAX_LINES) return whole(`the file has more than ${MAX_LINES.toLocaleString("en-US")} lines`);
  if (countDocuments(text) > MAX_DOCUMENTS)
    return whole(`the file has more than ${MAX_DOCUMENTS.toLocaleString("en-US")} documents`);
  if (hasMarkCharacters(text)) return whole("the file contains private-use characters (U+E000 to U+E002)");
  const tooDeep = firstTooDeepLine(text, CONFIGURATION.maxDepth);
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
  let parsed: readonly Document.Parsed[];
  try {
    parsed = yield* readYamlInSteps(CONFIGURATION, marked.text, { lines, stringKeys: true });
  } catch (error) {
    if (error instanceof InputError) return whole(error.problem === "depth" ? TOO_DEEP : `the file ${error.message}`);
    throw error;
  }
  for (const document of parsed) {
    yield;
    // The library only warns about an unknown tag.
    const errors = [...document.errors, ...document.warnings.filter(({ code }) => code === "TAG_RESOLVE_FAILED")];
    if (errors.length > 0) {
      problems.push(...syntaxProblems(errors, marked.text, at, TOO_DEEP));
      continue;
    }
    const texts = new Map<unknown, EnvironmentText>();
    const unset: UnsetValue[] | undefined = options.allowUnset ? [] : undefined;
    const names = new Map<string, string>();
    const found = resolveDocument(document, marked.placeholders, environment, at, texts, names, unset);
    yield;
    problems.push(...withoutVariableNames(found, names));
    if (found.length > 0) continue;
    try {
      documents.push({
        ...sourceDocument(file, document, at, texts),
        ...(names.size > 0 ? { variableNames: names } : {}),
        ...(unset ? { unset } : {}),
      });
    } catch (error) {
      // Aliases of aliases can grow exponentially, and an alias can be inside its own anchor.
      const reason = `the aliases cannot be expanded: ${(error as Error).message}`;
      problems.push(new ConfigError(at(startOf(document.contents)), "", reason));
    }
  }
  return { documents, problems: problems.sort(byPlace).slice(0, MAX_PROBLEMS) };
}

function countLines(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

/** Counts the lines that begin with `---`, some of which may be inside strings. */
function countDocuments(text: string): number {
  let documents = text.startsWith("---") ? 1 : 0;
  for (let at = text.indexOf("\n---"); at >= 0; at = text.indexOf("\n---", at + 4)) documents += 1;
  return documents;
}

export function byPlace({ position: a }: ConfigError, { position: b }: ConfigError): number {
  return a && b ? a.line - b.line || a.column - b.column : 0;
}

function sourceDocument(
  file: string,
  document: Document.Parsed,
  at: (offset: number) => Position,
  texts: ReadonlyMap<unknown, EnvironmentText>,
): SourceDocument {
  const value = expandedValue(document);

  /** A search in the list of pairs for each of many problems would be quadratic. */
  const indexes = new Map<unknown, Map<string, Pair>>();
  const pairOf = (map: YAMLMap, key: string): Pair | undefined => {
    let index = indexes.get(map);
    if (index === undefined) {
      // The list is reversed, so that the first of equal keys takes precedence.
      index = new Map(map.items.map((item) => [keyOf(item), item] as const).reverse());
      indexes.set(map, index);
    }
    return index.get(key);
  };

  function find(path: Path, what: "key" | "value"): { node: unknown; start: number } {
    let node: unknown = document.contents;
    let start = startOf(node);
    for (const key of path) {
      if (node instanceof Alias) node = node.resolve(document);
      if (isMap(node)) {
        const pair = pairOf(node, String(key));
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
      // The property is not enumerable, so that logs and dumps do not show the values.
      return environment === undefined
        ? at(start)
        : Object.defineProperty(at(start), "variables", { value: environment.values });
    },
    fromEnvironment: (path) => texts.get(find(path, "value").node),
  };
}

export interface EnvironmentText {
  readonly text: string;
  readonly names: readonly string[];
  readonly values: readonly VariableValue[];
}

export interface UnsetValue {
  readonly path: Path;
  readonly names: readonly string[];
}

/**
 * Resolves placeholders and checks the document. Returns its problems, and adds field names that contain variables to
 * `names`.
 */
export function resolveDocument(
  document: Document.Parsed,
  placeholders: readonly Placeholder[],
  environment: Environment,
  at: (offset: number) => Position,
  texts: Map<unknown, EnvironmentText>,
  names: Map<string, string>,
  unset: UnsetValue[] | undefined,
): ConfigError[] {
  const problems: ConfigError[] = [];
  let aliases = 0;
  visit(document, {
    Map(_key, node, path) {
      const name = (pair: Pair): string => pathText([...pathOf(path, node), keyOf(pair)]);
      for (const { pair, first } of repeatedKeys(node.items)) {
        const { line } = at(startOf(first.key));
        const message = `duplicate key in the same object: it is in line ${line} already`;
        problems.push(new ConfigError(at(startOf(pair.key)), name(pair), message));
      }
      // An object would silently drop the key `__proto__`.
      for (const pair of node.items.filter((item) => keyOf(item) === "__proto__"))
        problems.push(new ConfigError(at(startOf(pair.key)), name(pair), "this name cannot be used"));
    },
    Alias(_key, node) {
      aliases += 1;
      if (aliases <= MAX_ALIASES && node.resolve(document) !== undefined) return undefined;
      if (aliases <= MAX_ALIASES) {
        problems.push(new ConfigError(at(startOf(node)), "", UNQUOTED_STAR));
        return undefined;
      }
      problems.push(new ConfigError(at(startOf(node)), "", `more than ${MAX_ALIASES} aliases`));
      return visit.BREAK;
    },
    Scalar(key, node, path) {
      if (path.length > CONFIGURATION.maxDepth * 2) {
        problems.push(new ConfigError(at(startOf(node)), "", TOO_DEEP));
        return visit.BREAK;
      }
      const place = (): Path => pathOf(path, node);
      const resolved = resolveScalar(node, place, document, placeholders, environment, at, problems, unset);
      if (resolved) texts.set(node, resolved);
      if (resolved && key === "key")
        names.set(String(node.value), resolved.names.map((name) => `\${${name}}`).join("…"));
      return undefined;
    },
  });
  return problems;
}

function resolveScalar(
  node: Scalar,
  /** Computed only for a message, because it is expensive in a long list. */
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
      problems.push(new ConfigError(at(startOf(node)), pathText(path()), missingVariable(name)));
  // A plain scalar is typed after the replacement, so `port: ${PORT}` is a number.
  node.value = node.type === Scalar.PLAIN ? retyped(resolved.text, document) : resolved.text;
  return resolved;
}

function missingVariable(name: string): string {
  return `${MISSING_VARIABLE}: ${name}. Set it, or write \${${name}:-default}`;
}

function retyped(text: string, document: Document.Parsed): unknown {
  for (const tag of document.schema.tags) {
    if (tag.collection === undefined && tag.default === true && tag.test?.test(text)) {
      const value = tag.resolve(text, () => undefined, document.options as never);
      return isScalar(value) ? value.value : value;
    }
  }
  return text;
}

function repeatedKeys(pairs: readonly Pair[]): { readonly pair: Pair; readonly first: Pair }[] {
  const seen = new Map<string, Pair>();
  return pairs.flatMap((pair) => {
    const key = keyOf(pair);
    const first = seen.get(key);
    if (first !== undefined) return [{ pair, first }];
    seen.set(key, pair);
    return [];
  });
}

/** The first syntax errors of a document mostly cause the later ones. */
const MAX_SYNTAX_PROBLEMS = 5;
export const MALFORMED = "malformed ${…}: use ${NAME} or ${NAME:-default}, and $${ for a literal ${";

export function syntaxProblems(
  errors: readonly YAMLError[],
  /** In this text, markers replace the valid placeholders. */
  marked: string,
  at: (offset: number) => Position,
  tooDeep: string,
): ConfigError[] {
  const problems = errors
    .filter((error, index) => index === 0 || !isEcho(error))
    .slice(0, MAX_SYNTAX_PROBLEMS)
    .map((error) => {
      const [offset] = error.pos;
      const malformed = malformedBefore(marked, offset);
      const opened = isOpenQuote(error) ? openQuote(marked) : undefined;
      if (opened !== undefined) return new ConfigError(at(opened), "", "the quote that opens here is never closed");
      return malformed === undefined
        ? new ConfigError(at(offset), "", yamlMessage(error.code, error.message, tooDeep))
        : new ConfigError(at(malformed), "", MALFORMED);
    });
  const lines = problems.map((problem) => problem.toLine());
  return problems.filter((_, index) => lines.indexOf(lines[index] as string) === index);
}

function isOpenQuote({ code, message }: YAMLError): boolean {
  return code === "MISSING_CHAR" && /^Missing closing ["']quote/.test(message);
}

/** Returns the offset of the quote that is not closed, because the parser reports the end of the file. */
function openQuote(text: string): number | undefined {
  const QUOTED = /(^|[:,[{?-])[ \t\n]*(["'])/gm;
  for (let found = QUOTED.exec(text); found !== null; found = QUOTED.exec(text)) {
    const quote = found[2] as string;
    const end = closingQuote(text, QUOTED.lastIndex, quote);
    if (end < 0) return QUOTED.lastIndex - 1;
    QUOTED.lastIndex = end + 1;
  }
  return undefined;
}

function closingQuote(text: string, from: number, quote: string): number {
  for (let at = from; at < text.length; at++) {
    if (quote === '"' && text[at] === "\\") at += 1;
    else if (text[at] !== quote) continue;
    else if (quote === "'" && text[at + 1] === "'") at += 1;
    else return at;
  }
  return -1;
}

/** After a syntax error, the parser reports further tokens as unexpected too. */
function isEcho(error: YAMLError): boolean {
  if (error.code === "MULTILINE_IMPLICIT_KEY") return true;
  return error.code === "UNEXPECTED_TOKEN" && error.message.includes("token in YAML stream");
}

/**
 * `{ port: ${} }` is a YAML syntax error. If the line contains an invalid placeholder before the error, the placeholder
 * is reported instead.
 */
function malformedBefore(marked: string, offset: number): number | undefined {
  const lineStart = marked.lastIndexOf("\n", offset - 1) + 1;
  const found = marked.slice(lineStart, offset + 2).indexOf("${");
  return found < 0 ? undefined : lineStart + found;
}

/** Does not quote the name, because any unquoted value that starts with `*` parses as an alias. */
const UNQUOTED_STAR = 'a value that begins with * needs quotes, for example "*"';

/** Removes quoted parts of the file, because they may contain a secret. */
function yamlMessage(code: string, message: string, tooDeep: string): string {
  if (code === "TAB_AS_INDENT") return "a tab is used for indentation: YAML needs spaces";
  if (code === "BAD_ALIAS") return UNQUOTED_STAR;
  if (message.startsWith("Plain value cannot start with"))
    return "a value that begins with this character needs quotes";
  const bracket = /^Flow (?:sequence|map) in block collection .* end with a (.)/.exec(message)?.[1];
  if (bracket !== undefined)
    return `"${bracket === "]" ? "[" : "{"}" is not closed before this line: add "${bracket}", or indent the line further`;
  if (code === "BLOCK_AS_IMPLICIT_KEY")
    return "the indentation is wrong here or in the next line (the keys of one object begin in the same column), or a value with a colon needs quotes";
  if (code === "MULTILINE_IMPLICIT_KEY" || message.startsWith("Implicit map keys need"))
    return "a colon is missing after a key, or the indentation is wrong";
  if (message.startsWith("Sequence item without - indicator"))
    return "every item of this list begins with `- ` in the same column: check the indentation";
  if (message.startsWith("All mapping items must start at the same column"))
    return "the keys of one object must begin in the same column: align this line with the other keys, or indent it further to put it below the key before it";
  if (code === "NON_STRING_KEY") return "a key must be a string: check the indentation, or quote the key";
  if (message.includes("call stack")) return tooDeep;
  const [line = message] = message.split("\n", 1);
  if (code === "TAG_RESOLVE_FAILED") return "unknown tag: quote values that begin with !";
  return line.replace(/(in YAML stream|includes extra characters|but found): .*$/, "$1");
}

export const TOO_DEEP = `nested deeper than ${CONFIGURATION.maxDepth} levels`;
