/**
 * Walks a parsed YAML document once: replaces `${VAR}` in its values and reports what the parser accepts but a
 * configuration must not have (repeated keys, too many aliases, too deep nesting, unset variables).
 */
import { type Document, isScalar, type Pair, Scalar, visit } from "yaml";
import { ConfigError, type Position } from "../../core/config-error.ts";
import type { VariableValue } from "../../observe/trace/redact.ts";
import { type Environment, type Placeholder, resolveMarks } from "./env.ts";
import { MALFORMED } from "./syntax-problems.ts";
import { MAX_DEPTH, TOO_DEEP } from "./too-deep.ts";
import { keyOf, type Path, pathOf, pathText, startOf } from "./value-path.ts";

/** Aliases that may be expanded in one file: a handful is convenience, thousands are a bomb. */
export const MAX_ALIASES = 100;

/** A value that names variables, as they made it before YAML gave it a type. */
export interface EnvironmentText {
  readonly text: string;
  readonly names: readonly string[];
  readonly values: readonly VariableValue[];
}

/** A value with variables that are not set, where that is allowed. */
export interface UnsetValue {
  readonly path: Path;
  readonly names: readonly string[];
}

/** Resolves placeholders and checks the shape; returns what is wrong. `names` gets the field names that variables made. */
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
      for (const pair of repeatedKeys(node.items))
        problems.push(new ConfigError(at(startOf(pair.key)), name(pair), "duplicate key in the same object"));
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
    Scalar(key, node, path) {
      if (path.length > MAX_DEPTH * 2) {
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

/** Every pair whose key stands earlier in the same object. */
function repeatedKeys(pairs: readonly Pair[]): Pair[] {
  const seen = new Set<string>();
  return pairs.filter((pair) => {
    const key = keyOf(pair);
    return seen.has(key) || !seen.add(key);
  });
}
