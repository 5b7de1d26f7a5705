/**
 * `npm run package`: writes the release artifacts to dist-package/: the npm package and, for this platform, one
 * executable with Node, the UI, the demo and gwctl. `-- --npm` builds only the first, `-- --one-file` only the second.
 */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { isBuilt } from "./build-stamp.mjs";
import { oneFileName, writeOneFile } from "./one-file.mjs";
import { installIfMissing, root, step } from "./steps.mjs";

const [only, folder = "dist-package"] = process.argv.slice(2);
const out = resolve(root, folder);

installIfMissing();
if (!isBuilt()) step("build", process.execPath, ["scripts/build.mjs"]);
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
if (only !== "--one-file") step("npm package", process.execPath, ["scripts/npm-package.mjs", out]);
if (only !== "--npm") await writeOneFile(out);
for (const name of ["LICENSE", "NOTICE"]) copyFileSync(join(root, name), join(out, name));
copyFileSync(join(root, "dist", "THIRD-PARTY-LICENSES.txt"), join(out, "THIRD-PARTY-LICENSES.txt"));
writeFileSync(join(out, "SHA256SUMS"), checksums());
for (const name of readdirSync(out)) console.log(`${mib(statSync(join(out, name)).size)}  ${join(folder, name)}`);

function checksums() {
  const sum = (name) =>
    createHash("sha256")
      .update(readFileSync(join(out, name)))
      .digest("hex");
  const names = readdirSync(out).filter((name) => name === oneFileName || name.endsWith(".tgz"));
  return names.map((name) => `${sum(name)}  ${name}\n`).join("");
}

function mib(bytes) {
  return `${(bytes / 1024 / 1024).toFixed(1).padStart(6)} MiB`;
}
