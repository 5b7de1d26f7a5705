/**
 * Stores a hash of the sources next to dist/, so that an unchanged checkout is not built again and a built checkout
 * starts on a read-only file system. The hash covers file contents, not times, which differ in every checkout.
 */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { root } from "./steps.mjs";

/** Everything that a bundle is made of or by; tests are not. */
const INPUTS = ["src", "ui", "scripts", "package.json", "package-lock.json", "tsconfig.json"];
const NOT_BUILT = /\.test\.tsx?$/;
const stamp = join(root, "dist", ".built-from");

export function isBuilt() {
  return existsSync(stamp) && readFileSync(stamp, "utf8") === inputsHash();
}

/** Called when a build is complete: one that broke off has no stamp. */
export function stampBuild(hash) {
  writeFileSync(stamp, hash);
}

export function inputsHash() {
  const hash = createHash("sha256");
  for (const path of INPUTS.flatMap((name) => filesAt(join(root, name))).sort()) {
    const content = readFileSync(path);
    hash.update(`${relative(root, path)}\0${content.length}\0`).update(content);
  }
  return hash.digest("hex");
}

function filesAt(path) {
  if (!existsSync(path)) return [];
  if (statSync(path).isFile()) return [path];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !NOT_BUILT.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}
