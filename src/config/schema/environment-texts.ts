/**
 * `clientSecret: ${SECRET}` with SECRET=12345 is a number to YAML, but a string was meant: where the schema wants a
 * string and the value comes from the environment alone, its text is taken as it is.
 */
import type { z } from "zod";
import type { Path } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";

type Issue = z.core.$ZodIssue;

/** The value with such texts in place; undefined if there are none. */
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

/** Where a string was expected and something else found, in any branch of a union. */
function stringPlaces(issues: readonly Issue[], base: Path = []): Path[] {
  return issues.flatMap((issue) => {
    const path = [...base, ...(issue.path as Path)];
    if (issue.code === "invalid_union") return issue.errors.flatMap((branch) => stringPlaces(branch, path));
    return issue.code === "invalid_type" && issue.expected === "string" ? [path] : [];
  });
}

/** A copy along the path, with another plain value at its end: aliases may share what lies beside it. */
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
