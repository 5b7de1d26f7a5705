/**
 * Copies the documentation site from dist-docs/ to dist/docs/, if it was built, with every file compressed. The gateway
 * and the npm package contain this copy.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { gzipSync } from "node:zlib";
import { root } from "./steps.mjs";

export const docsOut = join(root, "dist-docs");

/** Returns the size of the copy in bytes. */
export function packDocs() {
  const target = join(root, "dist", "docs");
  rmSync(target, { recursive: true, force: true });
  if (!existsSync(join(docsOut, "index.html"))) return 0;
  let bytes = 0;
  for (const name of filesBelow(docsOut)) {
    const zipped = gzipSync(readFileSync(join(docsOut, name)), { level: 9 });
    mkdirSync(dirname(join(target, name)), { recursive: true });
    writeFileSync(join(target, `${name}.gz`), zipped);
    bytes += zipped.length;
  }
  return bytes;
}

export function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath ?? entry.path, entry.name)));
}
