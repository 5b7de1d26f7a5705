/**
 * Converts values from environment variables. A value that YAML parsed as a number becomes a string if the schema
 * expects one, and unset variables get a placeholder during validation.
 */
import type { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import { isSecretSchema } from "../../core/schema.ts";
import type { Environment } from "../text/env.ts";
import { type Path, pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { below, unwrap } from "./schema-walk.ts";

type Issue = z.core.$ZodIssue;

/** Returns undefined if no value needs to be replaced by its string. */
export function withEnvironmentTexts(
  value: unknown,
  issues: readonly Issue[],
  document: SourceDocument,
  base: Path,
): unknown {
  let changed = value;
  for (const path of stringPlaces(issues)) {
    const { text } = document.fromEnvironment([...base, ...path]) ?? {};
    if (text !== undefined && text !== "") changed = replacedAt(changed, path, text);
  }
  return changed === value ? undefined : changed;
}

function stringPlaces(issues: readonly Issue[], base: Path = []): Path[] {
  return issues.flatMap((issue) => {
    const path = [...base, ...(issue.path as Path)];
    if (issue.code === "invalid_union") return issue.errors.flatMap((branch) => stringPlaces(branch, path));
    return issue.code === "invalid_type" && issue.expected === "string" ? [path] : [];
  });
}

/** Copies the value along the path and replaces its end, because YAML aliases may share other parts. */
export function replacedAt(value: unknown, path: Path, plain: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return typeof value === "object" && value !== null ? value : plain;
  if (typeof value !== "object" || value === null) return value;
  const copy: Record<string | number, unknown> | unknown[] = Array.isArray(value) ? [...value] : { ...value };
  (copy as Record<string | number, unknown>)[key] = replacedAt(
    (value as Record<string | number, unknown>)[key],
    rest,
    plain,
  );
  return copy;
}

/** One of these fits nearly every field. Other candidates come from the validation error of the field. */
const PLACEHOLDERS: readonly unknown[] = [
  0,
  1,
  true,
  "1s",
  "http://unset.invalid",
  "unset.invalid:1",
  "127.0.0.1:1",
  "/unset",
  "UNSET",
];

/** Leaves an unset variable without a placeholder if none fits. */
export function withPlaceholders(schema: z.ZodType, { value, unset = [] }: SourceDocument): unknown {
  let filled = value;
  for (const { path } of unset) {
    const issues = issuesAt(schema, filled, path);
    if (issues.length === 0) continue;
    const candidates = [...PLACEHOLDERS, ...issues.flatMap(valuesOf)].map((one) => replacedAt(filled, path, one));
    filled = candidates.find((candidate) => issuesAt(schema, candidate, path).length === 0) ?? filled;
  }
  return filled;
}

function issuesAt(schema: z.ZodType, value: unknown, path: Path): Issue[] {
  const parsed = schema.safeParse(value);
  return parsed.success ? [] : parsed.error.issues.filter((issue) => isAlong(issue.path as Path, path));
}

function isAlong(one: Path, path: Path): boolean {
  return one.length <= path.length && one.every((key, i) => String(key) === String(path[i]));
}

function valuesOf(issue: Issue): unknown[] {
  if (issue.code === "invalid_union") return issue.errors.flatMap((branch) => branch.flatMap(valuesOf));
  return issue.code === "invalid_value" ? [...issue.values] : [];
}

/** Matches a whole value, or the part after the scheme of a header. */
const PLAIN_VARIABLE = /^(?:(?:bearer|basic|token) +)?\$([A-Za-z_][A-Za-z0-9_]*)$/i;
/** A name in upper case always counts, but another spelling counts only if the variable exists. */
const IN_CAPITALS = /^[A-Z_][A-Z0-9_]+$/;

const MESSAGE = "`$NAME` without braces is plain text: write `${NAME}` for the variable";

export function plainDollarWarnings(
  schema: z.ZodType,
  document: SourceDocument,
  environment: Environment,
): ConfigError[] {
  const warnings: ConfigError[] = [];
  const walk = (schemas: readonly z.ZodType[], value: unknown, path: Path): void => {
    if (typeof value === "string") {
      if (!schemas.some(isSecretSchema) || !isMeantAsVariable(value, environment)) return;
      warnings.push(new ConfigError(document.position(path), pathText(path), MESSAGE));
    } else if (typeof value === "object" && value !== null) {
      const entries = Array.isArray(value) ? value.entries() : Object.entries(value);
      for (const [key, inner] of entries) walk(below(schemas, key), inner, [...path, key]);
    }
  };
  walk(unwrap(schema), document.value, []);
  return warnings;
}

function isMeantAsVariable(text: string, environment: Environment): boolean {
  const name = PLAIN_VARIABLE.exec(text)?.[1];
  return name !== undefined && (IN_CAPITALS.test(name) || Object.hasOwn(environment, name));
}
