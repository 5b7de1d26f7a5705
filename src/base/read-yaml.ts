/**
 * Parses YAML within the limits of an input's entry. Only this file imports the parser.
 */
import { Composer, type Document, isScalar, Lexer, LineCounter, Parser, visit, YAMLParseError } from "yaml";
import { InputError, type PeerInput } from "./peer-inputs.ts";
import { finish, type Steps } from "./sliced-work.ts";

/** Limits the expanded aliases in a document, as a protection against alias bombs. */
export const MAX_ALIASES = 100;
const TOKENS_PER_STEP = 256;
/** Brackets and indentation in strings and comments count too, so this check is generous. */
const GENEROUS = 4;
/** The lexer puts this character before each plain scalar. */
const PLAIN_SCALAR = "\u001f";
/** Other scalars, aliases, list items, and brackets. */
const ITEM = /^(?:["'*]|[-[{]$)/;

export interface YamlOptions {
  readonly lines?: LineCounter;
  /** Names that are not strings are errors. */
  readonly stringKeys?: boolean;
}

/**
 * Returns the documents of the text with their nodes and errors. Equal names in one object are not errors, because the
 * check of the library is quadratic. Throws an InputError if the text exceeds a limit.
 */
export function* readYamlInSteps(
  input: PeerInput<"YAML">,
  text: string,
  { lines = new LineCounter(), stringKeys = false }: YamlOptions = {},
): Steps<Document.Parsed[]> {
  if (text.length > input.maxBytes) throw InputError.tooLarge(input);
  if (firstTooDeepLine(text, input.maxDepth) !== undefined) throw tooDeep(input);
  const composer = new Composer({
    lineCounter: lines,
    prettyErrors: false,
    // A warning would print parts of the text.
    logLevel: "error",
    uniqueKeys: false,
    merge: false,
    version: "1.2",
    stringKeys,
  });
  const parser = new Parser(lines.addNewLine);
  const documents: Document.Parsed[] = [];
  lines.addNewLine(0);
  let tokens = 0;
  let items = 0;
  try {
    for (const lexeme of new Lexer().lex(text)) {
      if (lexeme === PLAIN_SCALAR || ITEM.test(lexeme)) items += 1;
      if (items > input.maxItems) throw InputError.tooManyItems(input);
      for (const token of parser.next(lexeme)) documents.push(...composer.next(token));
      tokens += 1;
      if (tokens % TOKENS_PER_STEP === 0) yield;
    }
    for (const token of parser.end()) {
      documents.push(...composer.next(token));
      yield;
    }
    documents.push(...composer.end());
    return documents;
  } catch (error) {
    // The parser recurses, so a document that exhausts the stack is rejected.
    throw error instanceof RangeError ? tooDeep(input) : error;
  }
}

/** Returns the documents of the text. Equal names in one object are errors of a document without other errors. */
export function readYamlDocuments(input: PeerInput<"YAML">, text: string, options?: YamlOptions): Document.Parsed[] {
  const documents = finish(readYamlInSteps(input, text, options));
  for (const document of documents)
    if (document.errors.length === 0) for (const error of repeatedNames(document)) document.errors.push(error);
  return documents;
}

/** Returns the value of a text with one document. Throws an InputError if the text is not valid. */
export function readYaml(input: PeerInput<"YAML">, text: string): unknown {
  const lines = new LineCounter();
  const [document, ...others] = readYamlDocuments(input, text, { lines });
  const [error] = document?.errors ?? [];
  // The parser also reports an exhausted stack as an error of the document.
  if (error?.message.includes("call stack")) throw tooDeep(input);
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0]);
    throw new InputError(input, "form", `${error.message} at line ${line}, column ${col}`);
  }
  if (others.length > 0) throw new InputError(input, "form", "contains several documents");
  return documentValue(input, document);
}

/** Works like `readYaml`, but accepts syntax errors and equal names, which API descriptions often have. */
export function readLooseYaml(input: PeerInput<"YAML">, text: string): unknown {
  return documentValue(input, finish(readYamlInSteps(input, text))[0]);
}

function documentValue(input: PeerInput<"YAML">, document: Document.Parsed | undefined): unknown {
  try {
    return document === undefined ? null : expandedValue(document);
  } catch (error) {
    if (error instanceof RangeError) throw tooDeep(input);
    // Aliases of aliases can grow exponentially, and an alias can be inside its own anchor.
    throw new InputError(input, "items", (error as Error).message);
  }
}

/** Throws if the aliases cannot be expanded. A document without a value is null. */
export function expandedValue(document: Document.Parsed): unknown {
  const value: unknown = document.toJS({ maxAliasCount: MAX_ALIASES }) ?? null;
  rejectCycles(value, new Map());
  return value;
}

/**
 * An alias inside its own anchor would make every traversal infinite. `visited` is false for objects above the value.
 * What several aliases share is visited once.
 */
function rejectCycles(value: unknown, visited: Map<object, boolean>): void {
  if (typeof value !== "object" || value === null) return;
  const isDone = visited.get(value);
  if (isDone === false) throw new Error("an alias is inside its own anchor");
  if (isDone === true) return;
  visited.set(value, false);
  for (const inner of Object.values(value)) rejectCycles(inner, visited);
  visited.set(value, true);
}

function tooDeep(input: PeerInput): InputError {
  return new InputError(input, "depth", `is nested deeper than ${input.maxDepth} levels`);
}

function repeatedNames(document: Document.Parsed): YAMLParseError[] {
  const errors: YAMLParseError[] = [];
  visit(document, {
    Map(_key, { items }) {
      const seen = new Set<unknown>();
      for (const { key } of items) {
        if (!isScalar(key)) continue;
        const start = key.range?.[0] ?? 0;
        if (seen.has(key.value))
          errors.push(new YAMLParseError([start, start + 1], "DUPLICATE_KEY", "Map keys must be unique"));
        seen.add(key.value);
      }
    },
  });
  return errors;
}

/**
 * Runs a cheap check before the parser, which recurses for nested brackets and indentation. The check does not
 * distinguish strings and comments, so its limit is generous.
 */
export function firstTooDeepLine(text: string, maxDepth: number): number | undefined {
  const limit = maxDepth * GENEROUS;
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
