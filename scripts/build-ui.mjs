/**
 * Bundles the web UI into dist/ui/: one page, hashed file names, and gzipped copies. Prints the size of a first visit
 * and fails if it exceeds its budget.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { root } from "./steps.mjs";

const MAX_FIRST_LOAD_BYTES = 60 * 1024;
const out = join(root, "dist", "ui");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const common = {
  absWorkingDir: root,
  outdir: "dist/ui",
  bundle: true,
  minify: true,
  target: "es2022",
  entryNames: "[name]-[hash]",
  chunkNames: "chunk-[hash]",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
};
const app = await build({
  ...common,
  entryPoints: { app: "ui/src/main.tsx", style: "ui/src/style/app.css" },
  format: "esm",
  splitting: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  tsconfig: "ui/tsconfig.json",
});
// Runs before the first paint, so that a chosen theme does not flash and no key is lost; a module would run after it.
const boot = await build({ ...common, entryPoints: { boot: "ui/src/boot.ts" }, format: "iife" });

/** The contents of the bundles, for the list of licenses. */
export const metafiles = [app.metafile, boot.metafile];

const icon = readFileSync(join(root, "ui", "favicon.svg"));
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8).toUpperCase()}.svg`;
writeFileSync(join(out, iconName), icon);

const outputs = { ...app.metafile.outputs, ...boot.metafile.outputs };
const entry = (source) => Object.keys(outputs).find((file) => outputs[file].entryPoint === source);
const script = entry("ui/src/main.tsx");
const style = entry("ui/src/style/app.css");
const bootScript = entry("ui/src/boot.ts");
const names = { script, style, boot: bootScript, icon: iconName };
const page = readFileSync(join(root, "ui", "index.html"), "utf8").replace(/\{\{(\w+)\}\}/g, (_whole, name) =>
  basename(names[name]),
);
writeFileSync(join(out, "index.html"), page);

const zippedBytes = new Map();
for (const name of [...Object.keys(outputs).map((file) => basename(file)), iconName, "index.html"]) {
  const zipped = gzipSync(readFileSync(join(out, name)), { level: 9 });
  writeFileSync(join(out, `${name}.gz`), zipped);
  zippedBytes.set(name, zipped.length);
}

const first = new Set([basename(style), basename(bootScript), iconName, "index.html"]);
addWithImports(script);
const firstLoad = [...first].reduce((sum, name) => sum + zippedBytes.get(name), 0);
const all = [...zippedBytes.values()].reduce((sum, bytes) => sum + bytes, 0);
console.log(`ui: first load ${kib(firstLoad)} gzipped, all ${kib(all)} in ${zippedBytes.size} files`);
if (firstLoad > MAX_FIRST_LOAD_BYTES) {
  console.error(`ui: the first load is larger than ${kib(MAX_FIRST_LOAD_BYTES)}`);
  process.exit(1);
}

function addWithImports(file) {
  if (first.has(basename(file))) return;
  first.add(basename(file));
  for (const { path, kind } of outputs[file].imports) if (kind === "import-statement") addWithImports(path);
}

function kib(bytes) {
  return `${(bytes / 1024).toFixed(1)} KB`;
}
