/**
 * Reads the configuration from files, directories, standard input, or a built-in string. Documents with a `kind` are
 * resources, documents with only `tests` are tests, and one other document is the standalone configuration.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { homeHint } from "../../base/files.ts";
import { onDemand } from "../../base/on-demand.ts";
import type { Steps } from "../../base/sliced-work.ts";
import { ConfigError, type Position } from "../../core/config-error.ts";
import { withPlaceholders } from "../schema/environment-values.ts";
import { validate } from "../schema/problems.ts";
import { configSchema } from "../schema/schema.ts";
import { type ConfigTest, testsDocument } from "../schema/tests-schema.ts";
import { type Environment, withoutVariableNames } from "../text/env.ts";
import { fieldsOf } from "../text/value-shapes.ts";
import {
  CONFIGURATION,
  MISSING_VARIABLE,
  parseSource,
  type SourceDocument,
  type SourceOptions,
  type UnsetValue,
} from "../text/yaml-source.ts";
import type { NormalConfig } from "./normal-config.ts";
import { normalize } from "./normalize.ts";

const require = createRequire(import.meta.url);
const foreignFormat = onDemand<typeof import("../import/direct-load.ts")>(() => require("../import/direct-load.js"));

export interface SourceText {
  readonly file: string;
  readonly text: string;
  /** Replaces all positions if the text was converted, because its lines are not those of the file. */
  readonly at?: Position;
}

export const STDIN = "-";
/** A directory with more files is probably not a configuration. */
const MAX_SOURCE_FILES = 1_000;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  EISDIR: "it is a directory",
  EACCES: "permission denied",
};

/** Throws a ConfigError if a path cannot be read. */
export function readSources(paths: readonly string[], readStdin: () => string): SourceText[] {
  return paths.flatMap((path) => {
    if (path === STDIN) return [{ file: "<stdin>", text: readStdin() }];
    return filesOf(path).map((file) => ({ file, text: readText(file) }));
  });
}

/** A directory contributes its YAML and JSON files, sorted by name. */
export function filesOf(path: string): string[] {
  let isDirectory: boolean;
  try {
    isDirectory = statSync(path).isDirectory();
  } catch (error) {
    throw unreadable(path, error);
  }
  if (!isDirectory) return [path];
  const files = readdirSync(path)
    .filter((name) => /\.(?:ya?ml|json)$/.test(name) && !name.startsWith("."))
    .sort()
    .map((name) => join(path, name));
  if (files.length > MAX_SOURCE_FILES)
    throw new ConfigError(
      undefined,
      "",
      `${path} has ${files.length} configuration files, the maximum is ${MAX_SOURCE_FILES}`,
    );
  return files;
}

export interface UnsetPlace extends UnsetValue {
  readonly document: SourceDocument;
}

export interface PlacedTest {
  readonly test: ConfigTest;
  readonly document: SourceDocument;
  readonly path: readonly (string | number)[];
}

export type LoadedConfig =
  | {
      readonly ok: true;
      readonly config: NormalConfig;
      readonly resources: readonly SourceDocument[];
      readonly standalone: SourceDocument;
      readonly tests: readonly PlacedTest[];
      readonly unset: readonly UnsetPlace[];
      readonly isEmpty: boolean;
      /** Describes how a configuration of another program was converted. */
      readonly warnings: readonly ConfigError[];
    }
  | {
      readonly ok: false;
      readonly problems: readonly ConfigError[];
      /** Returns a standalone configuration that does not match the schema. It may be one of another program. */
      mismatch?(): SourceDocument;
    };

/** Loads a configuration of this gateway. */
export function* loadConfig(
  sources: readonly SourceText[],
  environment: Environment,
  options: SourceOptions = {},
): Steps<LoadedConfig> {
  const problems: ConfigError[] = [];
  const documents: SourceDocument[] = [];
  for (const { file, text, at } of sources) {
    const parsed = yield* parseSource(file, text, environment, options);
    problems.push(...(at === undefined ? parsed.problems : parsed.problems.map((problem) => problemAt(at, problem))));
    for (const document of parsed.documents) documents.push(at === undefined ? document : documentAt(at, document));
  }
  if (problems.length > 0) return { ok: false, problems };
  yield;

  const isEmpty = (document: SourceDocument): boolean => document.value === null || document.value === undefined;
  const resources = documents.filter(isResource).flatMap(itemsOf);
  for (const document of resources) {
    const unprotected = unsupportedProtection(document);
    if (unprotected !== undefined) problems.push(unprotected);
  }
  const testDocuments = documents.filter(isTests);
  const [standalone = emptyDocument(sources[0]?.file ?? ""), ...more] = documents.filter(
    (document) => !isResource(document) && !isTests(document) && !isEmpty(document),
  );
  for (const other of more) {
    problems.push(
      new ConfigError(
        other.position([]),
        "",
        `a second standalone configuration: the first is in ${standalone.file}; documents with \`kind\` may be many, this one only once`,
      ),
    );
    yield;
  }

  const tests: PlacedTest[] = [];
  for (const document of testDocuments) {
    const validated = validate(testsDocument, document);
    if (validated.ok) tests.push(...placed(validated.value.tests, document));
    else problems.push(...validated.problems);
  }
  const validated = validate(configSchema, standalone, withPlaceholders(configSchema, standalone));
  const shown = (found: readonly ConfigError[]): readonly ConfigError[] =>
    withoutVariableNames(found, standalone.variableNames);
  if (!validated.ok)
    return { ok: false, problems: shown([...problems, ...validated.problems]), mismatch: () => standalone };
  yield;
  const normalized = normalize(validated.value, standalone, configSchema.shape.config.unwrap().parse({}));
  problems.push(...normalized.problems);
  if (problems.length > 0) return { ok: false, problems: shown(problems) };
  tests.unshift(...placed(validated.value.tests ?? [], standalone));
  const unset = documents.flatMap((document) => (document.unset ?? []).map((value) => ({ document, ...value })));
  const { config } = normalized;
  return { ok: true, config, resources, standalone, tests, unset, isEmpty: documents.every(isEmpty), warnings: [] };
}

function problemAt(at: Position, { path, message }: ConfigError): ConfigError {
  return new ConfigError(at, path, message);
}

/** Keeps the variables of each position, because messages must not quote their values. */
function documentAt(at: Position, document: SourceDocument): SourceDocument {
  return {
    ...document,
    position(path, what) {
      const variables = document.position(path, what)?.variables;
      return variables === undefined ? at : Object.defineProperty({ ...at }, "variables", { value: variables });
    },
  };
}

function isResource(document: SourceDocument): boolean {
  return typeof document.value === "object" && document.value !== null && "kind" in document.value;
}

/** Expands a list, such as `kind: List` from `kubectl get -o yaml`, into its documents. */
function itemsOf(document: SourceDocument): SourceDocument[] {
  const { kind, items } = document.value as { readonly kind?: unknown; readonly items?: unknown };
  if (typeof kind !== "string" || !kind.endsWith("List") || !Array.isArray(items)) return [document];
  return items.flatMap((value: unknown, i) =>
    itemsOf({
      ...document,
      value: typeof value === "object" && value !== null ? value : { kind: null },
      position: (path, at) => document.position(["items", i, ...path], at),
      fromEnvironment: (path) => document.fromEnvironment(["items", i, ...path]),
    }),
  );
}

function isTests({ value }: SourceDocument): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).join() === "tests";
}

/** Without this kind, requests would be sent in plain text, so a warning is not enough. */
function unsupportedProtection(document: SourceDocument): ConfigError | undefined {
  const { kind, apiVersion } = fieldsOf(document.value);
  if (kind !== "BackendTLSPolicy" || !String(apiVersion).startsWith("gateway.networking.k8s.io/")) return undefined;
  const message = "BackendTLSPolicy is not supported in files: set `backendTLS` in the policies of the backend instead";
  return new ConfigError(document.position(["kind"]), "kind", message);
}

function placed(tests: readonly ConfigTest[], document: SourceDocument): PlacedTest[] {
  return tests.map((test, i) => ({ test, document, path: ["tests", i] }));
}

function emptyDocument(file: string): SourceDocument {
  return { file, value: {}, position: () => ({ file, line: 1, column: 1 }), fromEnvironment: () => undefined };
}

function readText(file: string): string {
  let bytes: Buffer;
  try {
    if (statSync(file).size > CONFIGURATION.maxBytes) throw new Error("it is larger than 8 MiB");
    bytes = readFileSync(file);
  } catch (error) {
    throw unreadable(file, error);
  }
  try {
    return utf8.decode(bytes);
  } catch {
    // Another encoding would silently change non-ASCII characters, for example in a password.
    throw unreadable(file, new Error("it is not UTF-8 text"));
  }
}

function unreadable(path: string, error: unknown): ConfigError {
  const { code, message } = error as NodeJS.ErrnoException;
  const reason = code === undefined ? message : (SYSTEM_ERRORS[code] ?? code);
  return new ConfigError(undefined, "", `cannot read ${path}: ${reason}${homeHint(path, code)}`);
}

export type SourceList = readonly string[] | { readonly text: string };

export interface Sources {
  readonly names: readonly string[];
  readonly canChange: boolean;
  /** Throws a ConfigError if a path cannot be read. */
  read(): SourceText[];
  /** Returns the paths to watch now. New files can appear in a directory. */
  paths(): string[];
  /** Joins the content of all sources and of `namedFiles`, to detect changes. */
  content(namedFiles: Iterable<string>): string;
}

export function openSources(list: SourceList, readStdin: () => string): Sources {
  // Standard input can be read only once, so later reads return the same string.
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

/** A file that becomes unreadable also counts as a change. */
function fileContent(path: string): string {
  try {
    return `${path}\n${readFileSync(path, "utf8")}`;
  } catch {
    return `${path} unreadable`;
  }
}

/** Returns `own`, the result for a configuration of this gateway, unless that is one of a known other program. */
export function* loadForeign(
  own: LoadedConfig,
  sources: readonly SourceText[],
  environment: Environment,
  options: SourceOptions = {},
): Steps<LoadedConfig> {
  const standalone = own.ok ? undefined : own.mismatch?.();
  const source = sources.find(({ file }) => file === standalone?.file);
  if (standalone === undefined || source === undefined) return own;
  const foreign = foreignFormat().convertForeign(standalone, source.text);
  if (foreign === undefined) return own;
  const refuse = (problems: readonly ConfigError[]): LoadedConfig => {
    if (!foreign.isCertain) return own;
    // A conversion does not help if only variables are missing.
    const isConverted = problems.every(({ message }) => message.startsWith(MISSING_VARIABLE));
    return { ok: false, problems: isConverted ? problems : [foreignFormat().notLoadable(standalone), ...problems] };
  };
  if (foreign.problems.length > 0) return refuse(foreign.problems);
  yield;
  const at = standalone.position([]) ?? { file: standalone.file, line: 1, column: 1 };
  const converted = sources.map((one) => (one === source ? { file: one.file, text: foreign.text, at } : one));
  const loaded = yield* loadConfig(converted, environment, options);
  return loaded.ok ? { ...loaded, warnings: foreign.warnings } : refuse(loaded.problems);
}
