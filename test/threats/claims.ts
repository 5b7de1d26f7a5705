/**
 * Which tests claim which rows: read from the sources, so that a page and a test can say it without running anything.
 * A claim stands at the end of a test's name, `[L1]` or `[L1] [V20]`, or at the end of a case's name in a table whose
 * test has a name made from it. Tests that are skipped for good claim nothing. Statements of the specification are
 * claimed in the same way, `[S2.1-3]`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

export interface Claim {
  readonly id: string;
  /** From the project's folder. */
  readonly file: string;
  /** The name as it stands in the source, without ids. */
  readonly name: string;
}

const OWN_TESTS = ["test/threats.test.ts", "test/spec.test.ts"];

/** A statement of the specification, not a row of the threat model. */
export function isStatement(id: string): boolean {
  return id.includes("-");
}

export function collectClaims(root: string): Claim[] {
  return ["src", "test"]
    .flatMap((folder) => readdirSync(join(root, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && entry.name.endsWith(".test.ts"))
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((file) => !OWN_TESTS.includes(file))
    .sort()
    .flatMap((file) => claimsOf(file, readFileSync(join(root, file), "utf8")));
}

export function claimsOf(file: string, text: string): Claim[] {
  const hasTable = /\btest\(\s*`[^`]*\$\{/.test(text);
  const claims: Claim[] = [];
  for (const match of text.matchAll(/((?: \[(?:[A-Z]{1,2}\d{1,3}|S\d(?:\.\d)?-\d{1,2})\])+)(["'`])/g)) {
    const [, ids = "", quote = ""] = match;
    const begin = text.lastIndexOf(quote, match.index - 1);
    const before = text.slice(0, begin).trimEnd();
    if (/\btest\.(?:skip|todo)\($/.test(before)) continue;
    if (!before.endsWith("test(") && !hasTable) continue;
    const name = text.slice(begin + 1, match.index);
    for (const [, id = ""] of ids.matchAll(/\[([\w.-]+)\]/g)) claims.push({ id, file, name });
  }
  return claims;
}
