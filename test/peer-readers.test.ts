/**
 * Checks that the linter accepts the code, and rejects every other way to parse text of peers than the readers that take
 * an entry of the list of inputs.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const root = process.cwd();
const PROGRAM = join(root, "node_modules", "@biomejs", "biome", "bin", "biome");

interface Diagnostic {
  readonly category: string;
  readonly location: { readonly path: string | { readonly file: string } };
}

/** Lints the sources, with these files added, by the rules about readers only. Returns the paths with errors. */
async function wrongFiles(added: Readonly<Record<string, string>>): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-lint-"));
  try {
    const { overrides } = JSON.parse(readFileSync(join(root, "biome.json"), "utf8")) as { overrides: unknown };
    const config = { linter: { rules: { preset: "none" } }, overrides };
    writeFileSync(join(folder, "biome.json"), JSON.stringify(config));
    cpSync(join(root, "scripts", "lint"), join(folder, "scripts", "lint"), { recursive: true });
    cpSync(join(root, "src"), join(folder, "src"), { recursive: true });
    for (const [path, text] of Object.entries(added)) {
      mkdirSync(join(folder, path, ".."), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    const flags = ["lint", "--reporter=json", "--max-diagnostics=none", "."];
    const output = await new Promise<string>((resolve) => {
      execFile(process.execPath, [PROGRAM, ...flags], { cwd: folder, maxBuffer: 2 ** 26 }, (_error, text) =>
        resolve(text),
      );
    });
    const { diagnostics } = JSON.parse(output) as { diagnostics: readonly Diagnostic[] };
    const found = diagnostics.filter(({ category }) => /^(?:lint\/style\/noRestricted|plugin)/.test(category));
    const paths = found.map(({ location: { path } }) => (typeof path === "string" ? path : path.file));
    return [...new Set(paths.map((path) => path.replace(/^\.\//, "")))].sort();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const WRONG = [
  'import { gunzipSync } from "node:zlib"; gunzipSync("");',
  'import * as zlib from "node:zlib"; zlib.inflateSync("");',
  'import zlib from "node:zlib"; zlib.inflateSync("");',
  'const { gunzip } = await import("node:zlib"); gunzip;',
  'require("node:zlib").gunzipSync("");',
  'new DecompressionStream("gzip");',
  'import { parse } from "yaml"; parse("");',
  'import { parseDocument } from "yaml"; parseDocument("");',
  'import { Composer, Parser } from "yaml"; [Composer, Parser];',
  'import * as yaml from "yaml"; yaml.parse("");',
  '(await import("yaml")).parse("");',
  "export const fields = (text: string) => new URLSearchParams(text);",
  "export const fields = (text: string) => new globalThis.URLSearchParams(text);",
  "export const fields = (text: string) => new URL(text).searchParams;",
  "export const pattern = (text: string) => new RegExp(text);",
  'export const pattern = (text: string) => RegExp(text, "g");',
  "export const pattern = (text: string) => new globalThis.RegExp(text);",
  'export const value = JSON.parse("{}");',
  'import { RE2JS } from "@bufbuild/re2"; RE2JS.compile("");',
];

test("text of peers reaches the parsers of the platform only through a reader with limits", async () => {
  assert.deepEqual(await wrongFiles({}), []);
  const added = Object.fromEntries(WRONG.map((text, i) => [`src/admin/wrong-${i}.ts`, `${text}\n`]));
  const allowed = {
    "src/admin/right.ts": 'import { gzipSync } from "node:zlib"; export const packed = gzipSync("");\n',
  };
  assert.deepEqual(await wrongFiles({ ...added, ...allowed }), Object.keys(added).sort());
});
