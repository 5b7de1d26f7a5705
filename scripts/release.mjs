/**
 * `npm run release`: checks the checkout, builds the documentation and the packages, writes the SBOM, checksums and
 * release notes into dist-package/, and tags the commit. `-- --dry-run` does everything except the full test run and
 * the tag, and reports problems of the checkout as warnings. Nothing is published.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { releaseNotes, releaseProblems } from "./release-notes.mjs";
import { installIfMissing, npm, root, step } from "./steps.mjs";

const isDryRun = process.argv.includes("--dry-run");
const out = join(root, "dist-package");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const tag = `v${version}`;
const changelog = readFileSync(join(root, "CHANGELOG.md"), "utf8");

const problems = [
  ...releaseProblems(changelog, version),
  ...(git("status", "--porcelain") === "" ? [] : ["the checkout has changes that are not committed"]),
  ...(git("tag", "--list", tag) === "" ? [] : [`the tag ${tag} exists: raise the version in package.json`]),
];
for (const problem of problems) console.error(`${isDryRun ? "warning" : "error"}: ${problem}`);
if (problems.length > 0 && !isDryRun) process.exit(1);

installIfMissing();
step("check", npm(), isDryRun ? ["run", "--silent", "check"] : ["test", "--silent"]);
step("build", process.execPath, ["scripts/build.mjs"]);
step("docs", process.execPath, ["scripts/docs.mjs"]);
audit();
step("package", process.execPath, ["scripts/package.mjs"]);
copyFileSync(join(root, "dist", "sbom.cdx.json"), join(out, `mcp-llm-gateway-${version}.cdx.json`));
writeFileSync(join(out, "RELEASE-NOTES.md"), releaseNotes(changelog, version));
writeFileSync(join(out, "SHA256SUMS"), checksums());

if (isDryRun) console.log(`dry run: ${tag} is not tagged; the files are in dist-package/`);
else {
  step("tag", "git", ["tag", "--annotate", tag, "--message", `Release ${version}`]);
  console.log(`tagged ${tag}; push the tag and attach the files of dist-package/ to the release`);
}

/** A dry run also works without the npm registry. */
function audit() {
  const { status } = spawnSync(process.execPath, ["scripts/audit-bundled.mjs"], { cwd: root, stdio: "inherit" });
  const isUnavailable = status === 2;
  if (isUnavailable && isDryRun) console.error("warning: the bundled packages were not checked for vulnerabilities");
  else if (status !== 0) process.exit(1);
}

function git(...args) {
  const { status, stdout, stderr } = spawnSync("git", args, { cwd: root, encoding: "utf8" });
  if (status !== 0) throw new Error(`git ${args[0]}: ${stderr}`);
  return stdout.trim();
}

function checksums() {
  const names = readdirSync(out)
    .filter((name) => name !== "SHA256SUMS")
    .sort();
  const sum = (name) =>
    createHash("sha256")
      .update(readFileSync(join(out, name)))
      .digest("hex");
  return names.map((name) => `${sum(name)}  ${name}\n`).join("");
}
