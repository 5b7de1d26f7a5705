/**
 * Every document, decision record, specification section and source file that a comment cites is in the repository, so
 * that a reader can follow the reference.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";

const root = process.cwd();
const FOLDERS = ["src", "test", "scripts", "bench", "ui", "docs", "kubernetes", "deploy", "examples", "schema"];
const COMMENTED = /^(?:src|test|scripts|bench|ui)\/.*\.(?:tsx?|mjs)$/;

/** A file or folder of the repository in a code span, for example `src/cel/` or `logger.ts`. */
const PATH_IN_CODE =
  /`((?:(?:src|test|scripts|bench|ui|docs|deploy|kubernetes|examples|schema)\/[\w./-]*?|(?:[\w-]+\/)*[\w.-]+\.(?:tsx?|mjs|yaml|md)))\/?`/g;

interface Repository {
  /** All paths, relative to the project folder. */
  readonly paths: readonly string[];
  /** Section numbers of the specification reference, for example "2.1". */
  readonly sections: ReadonlySet<string>;
}

function filesBelow(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((path) => !path.includes("node_modules/"));
}

function openRepository(): Repository {
  const paths = [
    ...FOLDERS.flatMap(filesBelow),
    ...readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => name),
  ];
  const spec = readFileSync(join(root, "docs/reference/spec.md"), "utf8");
  return {
    paths,
    sections: new Set([...spec.matchAll(/^## (\d+(?:\.\d+)?)/gm)].map(([, number]) => number as string)),
  };
}

/** Block and line comments, one string each. A line comment starts a line or follows white space. */
function commentsOf(text: string): string[] {
  return [
    ...[...text.matchAll(/\/\*[\s\S]*?\*\//g)].map(([comment]) => comment),
    ...[...text.matchAll(/(?:^|\s)\/\/ (.*)$/gm)].map(([, comment]) => comment as string),
  ];
}

/** The citations of one comment that lead nowhere. */
function brokenReferences(comment: string, { paths, sections }: Repository): string[] {
  const broken: string[] = [];
  const exists = (cited: string): boolean => paths.some((path) => path === cited || path.endsWith(`/${cited}`));
  for (const [cited] of comment.matchAll(/(?<![\w./*{<-])(?:[\w-]+\/)*[\w-]+(?:\.test)?\.(?:md|tsx?|mjs)(?![\w/])/g))
    if (!exists(cited.replace(/^.*\.\//, ""))) broken.push(cited);
  for (const [cited, number] of comment.matchAll(/\bADR (\d+)/g))
    if (!paths.some((path) => path.startsWith(`docs/adr/${number?.padStart(4, "0")}-`))) broken.push(cited);
  for (const [, list] of comment.matchAll(/\bspec (\d+(?:\.\d+)?(?:(?:, | and )\d+(?:\.\d+)?)*)/g))
    for (const [number] of list?.matchAll(/\d+(?:\.\d+)?/g) ?? [])
      if (!sections.has(number)) broken.push(`spec ${number}`);
  for (const [cited] of comment.matchAll(/\((?:design|decisions|attributes|findings)\b[^)]*\)/g)) broken.push(cited);
  return broken;
}

test("every reference in a comment resolves", () => {
  const repository = openRepository();
  const commented = repository.paths.filter((path) => COMMENTED.test(path));
  assert.ok(commented.length > 500, "the sources were found");
  assert.ok(repository.sections.size > 10, "the sections were found");
  const broken = commented.flatMap((path) =>
    commentsOf(readFileSync(join(root, path), "utf8"))
      .flatMap((comment) => brokenReferences(comment, repository))
      .map((cited) => `${path}: ${cited}`),
  );
  assert.deepEqual(broken, []);
});

test("every relative import of a script resolves", () => {
  const scripts = openRepository().paths.filter((path) => /^(?:test|scripts|bench)\/.*\.mjs$/.test(path));
  assert.ok(scripts.length > 50, "the scripts were found");
  const broken = scripts.flatMap((path) =>
    [...readFileSync(join(root, path), "utf8").matchAll(/^(?:import|export)\b[^;]*? from "(\.[^"]+\.mjs)";$/gm)]
      .map(([, specifier]) => specifier as string)
      .filter((specifier) => !existsSync(join(root, dirname(path), specifier)))
      .map((specifier) => `${path}: ${specifier}`),
  );
  assert.deepEqual(broken, []);
});

test("the text that a fault or a mutation replaces occurs once in its file", async () => {
  const { FAULTS } = await import(join(root, "test/inputs/faults.mjs"));
  const { MUTATIONS } = await import(join(root, "test/simulation/mutations.mjs"));
  const replaced: { name: string; file: string; find: string }[] = [...FAULTS, ...MUTATIONS];
  assert.ok(replaced.length > 80, "the faults and mutations were found");
  const stale = replaced.filter(({ file, find }) => readFileSync(join(root, file), "utf8").split(find).length !== 2);
  assert.deepEqual(
    stale.map(({ name }) => name),
    [],
  );
});

const repository: Repository = {
  paths: ["docs/adr/0003-http1-connections.md", "docs/mcp.md", "src/core/errors.ts", "README.md"],
  sections: new Set(["2.1", "8"]),
};
const cases: [comment: string, broken: readonly string[]][] = [
  ["See docs/mcp.md, `mcp.md` and README.md.", []],
  ["See ADR 3 and spec 8, 2.1.", []],
  ["As `core/errors.ts` and `errors.ts` do.", []],
  ["See decisions.md.", ["decisions.md"]],
  ["See ADR 4.", ["ADR 4"]],
  ["Limits (spec 8 and 5.9)", ["spec 5.9"]],
  ["Kept short (design 2).", ["(design 2)"]],
  ["See `core/gone.ts`.", ["core/gone.ts"]],
];
for (const [comment, broken] of cases)
  test(`the checker reads: ${comment}`, () => {
    const found = brokenReferences(comment, repository);
    assert.deepEqual([...new Set(found)].sort(), [...broken].sort());
  });

test("every path in a decision record exists", () => {
  const { paths } = openRepository();
  const records = paths.filter((path) => path.startsWith("docs/adr/"));
  assert.ok(records.length > 40, "the records were found");
  const broken = records.flatMap((record) =>
    [...readFileSync(join(root, record), "utf8").matchAll(PATH_IN_CODE)]
      .map(([, cited = ""]) => cited)
      .filter((cited) => !paths.some((path) => `/${path}`.endsWith(`/${cited}`) || `/${path}`.includes(`/${cited}/`)))
      .map((cited) => `${record}: ${cited}`),
  );
  assert.deepEqual(broken, []);
});
