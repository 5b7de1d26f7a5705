/**
 * `npm run audit`: reports known vulnerabilities of the packages inside the bundles and exits with 1 if there is one.
 * Vulnerabilities of development tools do not reach users, so they do not count. Needs the npm registry and a build.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { npm, root } from "./steps.mjs";

const { components } = JSON.parse(readFileSync(join(root, "dist", "sbom.cdx.json"), "utf8"));
const bundled = new Set(components.map(({ purl }) => purl));
const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages;
const run = spawnSync(npm(), ["audit", "--json"], { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
const report = parsed(run.stdout);
if (report?.vulnerabilities === undefined) {
  console.error(`npm audit failed: ${report?.message ?? run.stderr.trim()}`);
  process.exit(2);
}
const found = Object.values(report.vulnerabilities).filter(({ nodes }) => nodes.some(isBundled));
for (const { name, severity, range, via } of found)
  console.error(`${name} ${range} (${severity}): ${via.map((one) => one.title ?? one).join("; ")}`);
console.log(`audit: ${bundled.size} bundled packages, ${found.length} with known vulnerabilities`);
process.exit(found.length === 0 ? 0 : 1);

function isBundled(path) {
  const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
  return bundled.has(`pkg:npm/${name.replace(/^@/, "%40")}@${lock[path]?.version}`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
