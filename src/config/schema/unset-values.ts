/**
 * Validation without the secrets: a value whose variables are not set gets a placeholder that its field accepts, so that
 * everything else can be checked. Never used to serve.
 */
import type { z } from "zod";
import type { Path } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { replacedAt } from "./environment-texts.ts";

type Issue = z.core.$ZodIssue;

/** One of these fits nearly every field; the texts come from what fields ask for. */
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

/** The document's value with placeholders that fit; as it is where none does. */
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

/** At the value, or at something that it is part of. */
function isAlong(one: Path, path: Path): boolean {
  return one.length <= path.length && one.every((key, i) => String(key) === String(path[i]));
}

function valuesOf(issue: Issue): unknown[] {
  if (issue.code === "invalid_union") return issue.errors.flatMap((branch) => branch.flatMap(valuesOf));
  return issue.code === "invalid_value" ? [...issue.values] : [];
}
