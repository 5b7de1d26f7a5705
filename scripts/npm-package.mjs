/**
 * `node scripts/npm-package.mjs <folder>`: writes the npm package into the folder, from dist/ as it is. Its `package.json`
 * names no packages except the optional profiler, because all others are bundled. The checkout itself is private, so
 * that it cannot be published by mistake.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { npm, root, step } from "./steps.mjs";

const COPIED = ["dist", "schema", "LICENSE", "NOTICE", "README.md"];
/** Members that only a checkout needs. */
const OMITTED = ["private", "scripts", "dependencies", "devDependencies", "overrides"];

const [folder = "."] = process.argv.slice(2);
const staged = mkdtempSync(join(tmpdir(), "npm-package-"));
process.on("exit", () => rmSync(staged, { recursive: true, force: true }));
for (const name of COPIED) cpSync(join(root, name), join(staged, name), { recursive: true });
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
for (const name of OMITTED) delete manifest[name];
writeFileSync(join(staged, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
step("npm package", npm(), ["pack", "--silent", "--pack-destination", resolve(folder)], { cwd: staged });
